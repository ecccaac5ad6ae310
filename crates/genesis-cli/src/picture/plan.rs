//! The picture of `genesis plan`: a bar for each strategy, as long as its smallest device, over the
//! lower bound; and the device asked about as a line across them.

use std::path::Path;

use genesis_replay::Result;
use genesis_replay::forecast::{Forecast, Plan};
use plotters::prelude::*;

use super::{
    Area, Drawn, FAINT_INK, FONT, GRID, INK, LINES, LIVE, WIDTH, axis_number, entry, gib, write,
};

const ROW_HEIGHT: u32 = 56;
const FRAME_HEIGHT: u32 = 120;
const NAMES_WIDTH: u32 = 270;

/// Draws `plan` into the SVG file `path`.
pub(crate) fn draw(path: &Path, plan: &Plan) -> Result<()> {
    let height = FRAME_HEIGHT + ROW_HEIGHT * plan.strategies.len() as u32;
    write(path, (WIDTH, height), |root| draw_bars(root, plan))
}

fn draw_bars(root: &Area<'_>, plan: &Plan) -> Drawn {
    let (names, bars) = root.split_horizontally(NAMES_WIDTH);
    let rows = plan.strategies.len();
    let (device_gib, bound_gib) = (gib(plan.device_bytes), gib(plan.lower_bound_bytes));
    let smallest = plan.strategies.iter().filter_map(|forecast| forecast.smallest_device_bytes);
    let most_gib = smallest.map(gib).fold(device_gib.max(bound_gib), f64::max) * 1.06;
    let title = format!("{} — smallest device of each strategy", plan.trace);
    let mut chart = ChartBuilder::on(&bars)
        .caption(title, (FONT, 22).into_font().color(&INK))
        .margin_right(18)
        .margin_top(14)
        .x_label_area_size(46)
        .build_cartesian_2d(0.0..most_gib, rows as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT_INK)
        .x_label_formatter(&|gib| axis_number(*gib, most_gib))
        .x_desc("memory of the device, GiB; filled: live peak, line: the device asked about")
        .label_style((FONT, 14).into_font().color(&FAINT_INK))
        .draw()?;
    for (row, forecast) in plan.strategies.iter().enumerate() {
        let (top, bottom) = (row as f64 + 0.2, row as f64 + 0.8);
        if let Some(bytes) = forecast.smallest_device_bytes {
            let bar = [(0.0, top), (gib(bytes), bottom)];
            chart.draw_series([Rectangle::new(bar, LINES[row % LINES.len()].filled())])?;
        }
        let bound = [(0.0, top), (bound_gib, bottom)];
        chart.draw_series([Rectangle::new(bound, LIVE.filled())])?;
        let middle = chart.backend_coord(&(0.0, row as f64 + 0.5)).1;
        entry(&names, (18, middle - 9), &forecast.strategy, &detail(forecast))?;
    }
    let line = [(device_gib, 0.0), (device_gib, rows as f64)];
    chart.draw_series(LineSeries::new(line, INK.stroke_width(2)))?;
    Ok(())
}

fn detail(forecast: &Forecast) -> String {
    let fits = if forecast.fits { "fits" } else { "does not fit" };
    match forecast.smallest_device_bytes {
        Some(bytes) => format!("{fits}; smallest {:.2} GiB", gib(bytes)),
        None => format!("{fits}; no device is enough"),
    }
}
