//! Products of the models that the table is made for: Qwen3 of 0.6, 1.7 and 8 billion weights.

/// Names, rows, columns.
pub fn all() -> Vec<(&'static str, u64, u64)> {
    // Hidden size, width of all query heads, gates; key and value heads are 1024 wide in each.
    let models = [
        (["0.6b-qkv", "0.6b-o", "0.6b-gate-up", "0.6b-down", "0.6b-head"], 1024, 2048, 3072),
        (["1.7b-qkv", "1.7b-o", "1.7b-gate-up", "1.7b-down", "1.7b-head"], 2048, 2048, 6144),
        (["8b-qkv", "8b-o", "8b-gate-up", "8b-down", "8b-head"], 4096, 4096, 12288),
    ];
    let of = |(names, hidden, q, gates): ([&'static str; 5], u64, u64, u64)| {
        let sizes = [(q + 2048, hidden), (hidden, q), (2 * gates, hidden), (hidden, gates), (151_936, hidden)];
        names.into_iter().zip(sizes).map(|(name, (rows, cols))| (name, rows, cols))
    };
    models.into_iter().flat_map(of).collect()
}
