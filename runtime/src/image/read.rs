//! Packs and manifests of the images of a program, each of which is read once, however many devices take it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use warpsmith_image::Manifest;
use warpsmith_image::pack::{Pack, PackError};

/// By where they lie in the program, which is where they stay: address and length.
type Read<T> = LazyLock<Mutex<HashMap<(usize, usize), Arc<T>>>>;

static PACKS: Read<Pack> = LazyLock::new(Mutex::default);
static MANIFESTS: Read<Manifest> = LazyLock::new(Mutex::default);

/// The pack that begins here.
pub(super) fn pack(bytes: &'static [u8]) -> Result<Arc<Pack>, PackError> {
    once(&PACKS, bytes, || Pack::read(bytes))
}

/// The manifest of this text.
pub(super) fn manifest(text: &'static str) -> Result<Arc<Manifest>, serde_json::Error> {
    once(&MANIFESTS, text.as_bytes(), || Manifest::parse(text))
}

/// What is known of these bytes, or what `read` reads; what is wrong with them is read anew.
fn once<T, E>(known: &Read<T>, bytes: &'static [u8], read: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
    let place = (bytes.as_ptr().addr(), bytes.len());
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(&place) {
        return Ok(Arc::clone(found));
    }
    let found = Arc::new(read()?);
    known.insert(place, Arc::clone(&found));
    Ok(found)
}
