//! The page of a run: plots that need no network, and all figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::columns::{COUNTED, TIMED, cell};

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A page of its own: a plot of bars for each family, and the table.
pub fn page(rows: &[Value], title: &str, note: &str) -> String {
    let timed = rows.iter().any(|r| r.get("us_median").is_some());
    let columns: &[(&str, &str, usize)] = if timed { &TIMED } else { &COUNTED };
    let (plotted, unit) = if timed {
        ("us_median", "us, median; line: p10 to p90")
    } else {
        ("issue_slots_per_element", "issue slots per element")
    };
    let mut families: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let group = row["group"].as_str().unwrap_or_default();
        // `gemv/q4_0` of `gemv/q4_0/8b-qkv`.
        let family = group.rsplit_once('/').map_or(group, |(family, _)| family);
        families.entry(family).or_default().push(row);
    }
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>\nbody{{font:14px/1.4 system-ui,\
         sans-serif;margin:2em;max-width:75em}}table{{border-collapse:collapse}}td,th{{padding:.1em .7em;text-align:right}}\
         td:first-child,th:first-child{{text-align:left}}tr:nth-child(even){{background:#f3f3f3}}svg text{{font:12px system-ui,\
         sans-serif}}</style></head><body>\n<h1>{0}</h1><p>{1}</p>\n",
        escaped(title),
        escaped(note)
    );
    for (family, rows) in families {
        let value = |r: &Value| r[plotted].as_f64().unwrap_or(0.0);
        let most = rows.iter().map(|r| value(r).max(r["us_p90"].as_f64().unwrap_or(0.0))).fold(1e-9, f64::max);
        let _ = writeln!(html, "<h2>{}</h2><p>{unit}</p>", escaped(family));
        let height = 18 * rows.len();
        let _ = writeln!(html, "<svg width=\"900\" height=\"{height}\" role=\"img\">");
        for (i, row) in rows.iter().enumerate() {
            let (y, v) = (18 * i, value(row));
            let id = escaped(row["id"].as_str().unwrap_or_default());
            let length = 480.0 * v / most;
            let _ = writeln!(
                html,
                "<text x=\"340\" y=\"{}\" text-anchor=\"end\">{id}</text><rect x=\"346\" y=\"{}\" width=\"{length:.1}\" \
                 height=\"12\" fill=\"#4a7ebb\"/><text x=\"{:.1}\" y=\"{}\">{v:.2}</text>",
                y + 13,
                y + 3,
                352.0 + length,
                y + 13
            );
            if let (Some(low), Some(high)) = (row["us_p10"].as_f64(), row["us_p90"].as_f64()) {
                let x = |v: f64| 346.0 + 480.0 * v / most;
                let _ = writeln!(
                    html,
                    "<line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#222\"/>",
                    x(low),
                    x(high),
                    y + 9
                );
            }
        }
        html += "</svg>\n";
    }
    html += "<h2>All figures</h2><table><tr><th>variant</th>";
    columns.iter().for_each(|(title, ..)| html += &format!("<th>{}</th>", escaped(title)));
    html += "</tr>\n";
    for row in rows {
        let _ = write!(html, "<tr><td>{}</td>", escaped(row["id"].as_str().unwrap_or_default()));
        columns.iter().for_each(|(_, name, digits)| html += &format!("<td>{}</td>", cell(row, name, *digits)));
        html += "</tr>\n";
    }
    html += "</table></body></html>\n";
    html
}
