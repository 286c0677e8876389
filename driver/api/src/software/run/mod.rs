//! How work runs: issued by a call (`issue`), step by step (`execute`), later on an engine thread (`worker`), and functions of the
//! host on a thread of theirs (`callback`).

pub(crate) mod callback;
pub(crate) mod execute;
pub(crate) mod issue;
pub(crate) mod worker;
