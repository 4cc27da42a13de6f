//! Leases as files: one per address, in the reference plugin's format, beside an index that is only ours.
