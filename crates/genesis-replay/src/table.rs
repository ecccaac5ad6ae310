//! Tables for people: columns as wide as their widest cell, numbers to the right.

use std::fmt;

/// Rows under a heading; the first column is text, the others are numbers.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings and no rows.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row, with a cell for each heading.
    pub fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width_of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width_of).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(formatter, "{cell:<width$}")?,
                    _ => write!(formatter, "  {cell:>width$}")?,
                }
            }
            writeln!(formatter)?;
            if number == 0 {
                let rule = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
                writeln!(formatter, "{}", "─".repeat(rule))?;
            }
        }
        Ok(())
    }
}

/// A number with its digits in groups of three: `452,378`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time that people read: `12.3 ms`, and seconds from the first: `1.32 s`.
pub fn duration(nanoseconds: u64) -> String {
    let seconds = nanoseconds as f64 / 1e9;
    if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut table = Table::new(&["name", "count"]);
        table.add(vec!["long name".to_owned(), "7".to_owned()]);
        table.add(vec!["–".to_owned(), "1,000".to_owned()]);
        let expected = "name       count\n────────────────\nlong name      7\n–          1,000\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")]
        {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(duration(1_234_567), "1.2 ms");
        assert_eq!(duration(49_214_500_000), "49.21 s");
    }
}
