//! Entries: which there are, when they are read, and which go.

#![allow(clippy::unwrap_used)]

use super::*;

fn cache(folder: &Path, bound: u64, target: &str) -> CodeCache {
    CodeCache { folder: folder.to_owned(), bound, target: target.to_owned() }
}

/// A folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("warpsmith-code-cache-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn the_environment_names_a_folder_or_switches_it_off() {
    let place = |pairs: &[(&str, &str)]| {
        Location::of(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value)))
    };
    assert!(matches!(place(&[(VARIABLE, "0"), ("HOME", "/h")]), Location::Off(_)));
    assert!(matches!(place(&[(VARIABLE, "Off"), ("HOME", "/h")]), Location::Off(_)));
    assert!(matches!(place(&[]), Location::Off(_)));
    assert_eq!(place(&[(VARIABLE, "/c"), ("HOME", "/h")]), Location::Named("/c".into()));
    if !cfg!(windows) {
        assert_eq!(place(&[("HOME", "/h")]), Location::Default("/h/.cache/warpsmith/code".into()));
        assert_eq!(place(&[("HOME", "/h"), (VARIABLE, "")]), Location::Default("/h/.cache/warpsmith/code".into()));
        assert_eq!(place(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Location::Default("/x/warpsmith/code".into()));
        // A relative path would be another folder for each working directory.
        assert_eq!(
            place(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]),
            Location::Default("/h/.cache/warpsmith/code".into())
        );
    }
}

#[test]
fn text_architecture_and_driver_tell_entries_apart() {
    let of = |target: &str, text: &str| cache(Path::new("/"), 0, target).key(text);
    let keys = [
        of("cuda 13050 580.65 sm_90", "a"),
        of("cuda 13050 580.65 sm_90", "b"),
        of("cuda 13050 580.65 sm_80", "a"),
        of("cuda 13050 580.66 sm_90", "a"),
        of("cuda 13040 580.65 sm_90", "a"),
        of("software 13050  sm_90", "a"),
        // Where one part ends and the next begins.
        of("cuda 13050 580.65 sm_9", "0a"),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "{at}");
    }
}

#[test]
fn an_entry_that_is_damaged_is_not_read() {
    let folder = folder("damaged");
    let cache = cache(&folder, 1 << 20, "t");
    let key = cache.key("text");
    assert_eq!(cache.read(key), None);
    cache.write(key, b"compiled");
    assert_eq!(cache.read(key).as_deref(), Some(&b"compiled"[..]));
    let path = folder.join(key.file());
    let whole = std::fs::read(&path).unwrap();
    // Every byte counts, and so does every length.
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        std::fs::write(&path, altered).unwrap();
        assert_eq!(cache.read(key), None, "byte {at}");
        std::fs::write(&path, &whole[..at]).unwrap();
        assert_eq!(cache.read(key), None, "{at} bytes");
    }
    std::fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert_eq!(cache.read(key), None, "a byte too many");
    // One under the name of another.
    std::fs::write(&path, &whole).unwrap();
    let other = cache.key("other text");
    std::fs::copy(&path, folder.join(other.file())).unwrap();
    assert_eq!(cache.read(other), None);
    cache.write(other, b"other");
    assert_eq!(cache.read(other).as_deref(), Some(&b"other"[..]), "it is replaced");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_was_used_last_stays() {
    let folder = folder("bound");
    let entry = (HEADER + 100) as u64;
    let cache = cache(&folder, 3 * entry, "t");
    let age = |text: &str, seconds: u64| {
        let file = File::options().append(true).open(folder.join(cache.key(text).file())).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    };
    for (text, seconds) in [("a", 300), ("b", 200), ("c", 100)] {
        cache.write(cache.key(text), &[7; 100]);
        age(text, seconds);
    }
    assert!(cache.read(cache.key("a")).is_some(), "the oldest, used now");
    cache.write(cache.key("d"), &[7; 100]);
    let held = |text: &str| folder.join(cache.key(text).file()).exists();
    assert_eq!(["a", "b", "c", "d"].map(held), [true, false, true, true]);
    assert_eq!(entries(&folder).unwrap().iter().map(|e| e.bytes).sum::<u64>(), 3 * entry);
    // What a process has left that died, and what one writes that lives.
    for (name, seconds) in [("x.partial", 2 * STALE.as_secs()), ("y.partial", 1)] {
        let file = File::create(folder.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }
    cache.write(cache.key("e"), &[7; 100]);
    assert!(!folder.join("x.partial").exists() && folder.join("y.partial").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = folder("file");
    std::fs::write(&folder, "a file, where a folder is wanted").unwrap();
    let cache = cache(&folder, 1 << 20, "t");
    cache.write(cache.key("a"), b"code");
    assert_eq!(cache.read(cache.key("a")), None);
    assert!(TOLD.load(Ordering::Relaxed), "it was told");
    std::fs::remove_file(&folder).unwrap();
}
