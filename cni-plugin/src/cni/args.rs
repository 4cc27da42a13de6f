//! `CNI_ARGS`: `K=V` pairs separated by `;`.
