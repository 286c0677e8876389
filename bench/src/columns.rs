//! The columns of the closing table and of the page: title, name of the figure in a row, digits behind the point.

use serde_json::Value;

/// Of what the software driver counts.
pub(crate) const COUNTED: [(&str, &str, usize); 9] = [
    ("inst/elem", "lane_instructions_per_element", 3),
    ("slots/elem", "issue_slots_per_element", 3),
    ("DRAM/useful", "dram_bytes_per_useful_byte", 3),
    ("% of floor", "percent_of_floor", 1),
    ("sect/req", "sectors_per_request", 2),
    ("conflicts", "bank_conflicts", 0),
    ("regs", "registers", 0),
    ("spills", "spill_bytes", 0),
    ("occ %", "occupancy_percent", 0),
];
/// Of times on a GPU.
pub(crate) const TIMED: [(&str, &str, usize); 5] = [
    ("us", "us_median", 2),
    ("p10", "us_p10", 2),
    ("p90", "us_p90", 2),
    ("GB/s", "gb_per_s", 1),
    ("% of read rate", "percent_of_floor", 1),
];

/// A figure as the table and the page show it.
pub(crate) fn cell(row: &Value, name: &str, digits: usize) -> String {
    row[name].as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.digits$}"))
}
