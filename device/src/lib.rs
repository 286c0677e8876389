//! What a GPU kernel may call, and what a host needs to describe its launch
