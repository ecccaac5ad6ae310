//! The picture of `genesis plan --batch`: the live peak over the batch, the recordings on it, what
//! each strategy reserves at its largest batch, and the device as a line across.

use std::path::Path;

use genesis_replay::Result;
use genesis_replay::batch::{Batches, Largest};
use genesis_replay::table::grouped;
use plotters::prelude::*;

use super::{
    Area, Drawn, FAINT_INK, FONT, GRID, INK, KEY_WIDTH, LINES, LIVE, PANEL_HEIGHT, WIDTH,
    axis_number, entry, gib, write,
};

/// Draws `batches` into the SVG file `path`.
pub(crate) fn draw(path: &Path, batches: &Batches) -> Result<()> {
    write(path, (WIDTH, PANEL_HEIGHT), |root| draw_chart(root, batches))
}

fn draw_chart(root: &Area<'_>, batches: &Batches) -> Drawn {
    let (chart_area, key_area) = root.split_horizontally(WIDTH - KEY_WIDTH);
    let device_gib = gib(batches.device_bytes);
    let most_batch = batches.course.iter().map(|point| point.0).max().unwrap_or(1) as f64;
    let most_gib =
        batches.course.iter().map(|point| gib(point.1)).fold(device_gib, f64::max) * 1.06;
    let mut chart = ChartBuilder::on(&chart_area)
        .caption("memory over the batch", (FONT, 22).into_font().color(&INK))
        .margin(18)
        .margin_top(14)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most_batch, 0.0..most_gib)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT_INK)
        .x_label_formatter(&|batch| grouped(batch.round() as u64))
        .y_label_formatter(&|gib| axis_number(*gib, most_gib))
        .x_desc("batch; circles: recorded, squares: the largest that fits")
        .y_desc("memory of the device, GiB")
        .label_style((FONT, 14).into_font().color(&FAINT_INK))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .draw()?;
    let live = batches.course.iter().map(|(batch, bytes)| (*batch as f64, gib(*bytes)));
    chart.draw_series(AreaSeries::new(live, 0.0, LIVE.mix(0.75)).border_style(LIVE))?;
    let line = [(0.0, device_gib), (most_batch, device_gib)];
    chart.draw_series(LineSeries::new(line, INK.stroke_width(2)))?;
    let recorded = batches.recorded.iter().map(|one| (one.batch as f64, gib(one.live_peak_bytes)));
    chart.draw_series(recorded.map(|at| Circle::new(at, 4, INK.filled())))?;
    for (row, one) in batches.largest.iter().enumerate() {
        if let (Some(batch), Some(bytes)) = (one.predicted, one.reserved_peak_bytes) {
            let at = (batch as f64, gib(bytes));
            let square = Rectangle::new([(-5, -5), (5, 5)], LINES[row % LINES.len()].filled());
            chart.draw_series([EmptyElement::at(at) + square])?;
        }
    }
    draw_key(&key_area, batches)
}

fn draw_key(area: &Area<'_>, batches: &Batches) -> Drawn {
    let (text_left, mut top) = (46, 62);
    let of_live = match batches.bound {
        Some(bound) => format!("fits up to {}", grouped(bound)),
        None => "does not grow".to_owned(),
    };
    area.draw(&Rectangle::new([(8, top - 7), (36, top + 7)], LIVE.mix(0.75).filled()))?;
    entry(area, (text_left, top), "live", &of_live)?;
    for (row, one) in batches.largest.iter().enumerate() {
        top += 46;
        let swatch =
            Rectangle::new([(8, top - 7), (36, top + 7)], LINES[row % LINES.len()].filled());
        area.draw(&swatch)?;
        entry(area, (text_left, top), &one.strategy, &detail(one))?;
    }
    Ok(())
}

fn detail(one: &Largest) -> String {
    match (one.predicted, one.error_ratio) {
        (None, _) => "no prediction".to_owned(),
        (Some(0), _) => "no batch fits".to_owned(),
        (Some(batch), None) => format!("largest batch {}", grouped(batch)),
        (Some(batch), Some(ratio)) => {
            format!("largest batch {}; error {:.1} %", grouped(batch), ratio * 100.0)
        }
    }
}
