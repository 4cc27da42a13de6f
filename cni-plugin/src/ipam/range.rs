//! Ranges of addresses: parsing, checking, and the order in which addresses are tried.
