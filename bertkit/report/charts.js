// The data block enters, curves leave: one SVG in every place of the page that asks for a chart.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set();
  let axis = data.axes.length ? data.axes[0].key : "step";
  const charts = [...document.querySelectorAll("[data-chart]")].map((place) =>
    makeChart(place, data.charts[place.dataset.chart]),
  );

  for (const box of document.querySelectorAll("input[data-run]")) {
    box.addEventListener("change", () => {
      const run = Number(box.dataset.run);
      if (box.checked) hidden.delete(run);
      else hidden.add(run);
      charts.forEach((chart) => chart.draw());
    });
  }
  for (const choice of document.querySelectorAll("input[name=axis]")) {
    choice.addEventListener("change", () => {
      axis = choice.value;
      charts.forEach((chart) => chart.draw());
    });
  }

  // One chart: `draw` lays it out for the width it has, `show` puts the read-out at one of the places along it.
  function makeChart(place, chart) {
    const readout = element("div", { class: "readout" });
    readout.hidden = true;
    let picture = null;
    let drawn = null;
    let at = -1;

    const figure = place.closest("figure");

    function draw() {
      const series = visibleSeries(chart);
      // Without a run to show there is no axis to draw.
      figure.hidden = series.length === 0;
      if (figure.hidden) return;
      const width = Math.max(place.clientWidth, 240);
      const focused = picture !== null && document.activeElement === picture;
      at = -1;
      readout.hidden = true;
      drawn = layOut(chart, series, width);
      place.replaceChildren(drawn.svg, readout);
      picture = drawn.svg;
      listen();
      if (focused) picture.focus({ preventScroll: true });
    }

    function listen() {
      const toPlace = (event) => {
        const x = event.clientX - picture.getBoundingClientRect().left;
        show(nearest(drawn.places, drawn.x.invert(x)));
      };
      picture.addEventListener("pointermove", toPlace);
      picture.addEventListener("pointerdown", toPlace);
      picture.addEventListener("pointerleave", (event) => {
        if (event.pointerType === "mouse" && document.activeElement !== picture) hide();
      });
      picture.addEventListener("blur", hide);
      picture.addEventListener("keydown", (event) => {
        const last = drawn.places.length - 1;
        const stride = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
        const from = at < 0 ? last + 1 : at;
        const moves = {
          ArrowLeft: from - stride,
          ArrowDown: from - stride,
          ArrowRight: at < 0 ? 0 : at + stride,
          ArrowUp: at < 0 ? 0 : at + stride,
          Home: 0,
          End: last,
        };
        if (event.key === "Escape") hide();
        if (!(event.key in moves)) return;
        event.preventDefault();
        show(Math.min(Math.max(moves[event.key], 0), last));
      });
    }

    function show(index) {
      if (index === at || drawn.places.length === 0) return;
      at = index;
      const value = drawn.places[index];
      const x = drawn.x(value);
      const rows = [];
      drawn.cursor.replaceChildren(
        element("line", { x1: x, x2: x, y1: drawn.top, y2: drawn.bottom, class: "cursor" }),
      );
      for (const series of drawn.series) {
        const point = pointAt(series, value, drawn.gap);
        if (!point) continue;
        drawn.cursor.append(
          element("circle", { cx: drawn.x(point.x), cy: drawn.y(point.y), r: 4, class: `dot ${colour(series)}` }),
        );
        rows.push([series, point]);
      }
      const head = `${axisLabel()} ${written(value, axis === "minutes" ? "fixed1" : "count")}`;
      const list = rows.map(([series, point]) =>
        element("tr", {}, [
          element("td", {}, [element("i", { class: `swatch ${colour(series)}${series.strong ? "" : " thin"}` })]),
          element("td", {}, [name(series)]),
          element("td", { class: "value" }, [written(point.y, chart.form)]),
        ]),
      );
      readout.replaceChildren(element("p", {}, [head]), element("table", {}, [element("tbody", {}, list)]));
      readout.hidden = false;
      const room = place.clientWidth - readout.offsetWidth;
      const beside = x + 14 > room ? x - 14 - readout.offsetWidth : x + 14;
      readout.style.left = `${Math.min(Math.max(beside, 0), Math.max(room, 0))}px`;
      picture.setAttribute("aria-valuenow", value);
      const spoken = rows.map(([series, point]) => `${name(series)} ${written(point.y, chart.form)}`);
      picture.setAttribute("aria-valuetext", [head, ...spoken].join(", "));
    }

    function hide() {
      at = -1;
      readout.hidden = true;
      drawn.cursor.replaceChildren();
    }

    const name = (series) =>
      data.runs.length < 2
        ? series.label
        : several(chart, series.run)
          ? `${data.runs[series.run].name}, ${series.label}`
          : data.runs[series.run].name;

    draw();
    let known = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth !== known) {
        known = place.clientWidth;
        draw();
      }
    }).observe(place);
    return { draw };
  }

  // The series with their points on the chosen axis; a missing number is a gap.
  function visibleSeries(chart) {
    return chart.series
      .filter((series) => !hidden.has(series.run))
      .map((series) => {
        const xs = data.columns[series.column][axis];
        const points = series.y.map((y, index) => ({ x: xs[index], y }));
        return { ...series, points, known: points.filter((point) => point.y !== null) };
      })
      .filter((series) => series.known.length);
  }

  function layOut(chart, series, width) {
    const narrow = width < 480;
    const height = narrow ? 230 : 280;
    const known = series.flatMap((line) => line.known);
    const levels = (chart.levels || []).filter((level) => !hidden.has(level.run)).sort((a, b) => b.y - a.y);
    const heights = [...known, ...levels].map((point) => point.y);
    const yTicks = ticks(
      Math.min(...heights, chart.fromZero ? 0 : Infinity),
      Math.max(...heights, chart.fromZero ? 1e-9 : -Infinity),
      narrow ? 4 : 5,
    );
    const xMost = Math.max(...known.map((point) => point.x));
    const xLeast = Math.min(...known.map((point) => point.x), data.fromFirst ? Infinity : 0);
    const tickTexts = yTicks.values.map((value) => tickText(value, yTicks.step, chart.form));
    const labels = endLabels(chart, series, narrow);
    const left = Math.max(...tickTexts.map(textWidth), 16) + 10;
    // A line that ends early has room for its label inside the plot.
    const beyond = labels.map(({ series: line, text }) => {
      const end = (line.known[line.known.length - 1].x - xLeast) / (xMost - xLeast || 1);
      return textWidth(text) + 12 - (1 - end) * (width - left - 60);
    });
    const right = Math.max(...beyond, 20);
    const [top, bottom] = [10, height - 36];
    const x = scale(xLeast, xMost > xLeast ? xMost : xLeast + 1, left, width - right);
    const y = scale(yTicks.from, yTicks.to, bottom, top);

    const svg = element("svg", {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      tabindex: 0,
      role: "slider",
      "aria-label": `${chart.title}: arrow keys read out values`,
      "aria-valuemin": xLeast,
      "aria-valuemax": xMost,
      "aria-valuenow": xMost,
      "aria-valuetext": labels.map((label) => label.text).join(", "),
    });
    yTicks.values.forEach((value, index) => {
      const base = value === yTicks.from;
      svg.append(
        element("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: base ? "base" : "grid" }),
        element("text", { x: left - 8, y: y(value) + 4, class: "tick end" }, [tickTexts[index]]),
      );
    });
    const xTicks = ticks(xLeast, xMost, Math.max(2, Math.floor((width - left - right) / 75)), axis !== "minutes");
    for (const value of xTicks.values.filter((value) => value >= xLeast && value <= xMost)) {
      svg.append(
        element("line", { x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4, class: "base" }),
        element("text", { x: x(value), y: bottom + 17, class: "tick middle" }, [short(value)]),
      );
    }
    svg.append(element("text", { x: width - right, y: height - 3, class: "axis end" }, [axisLabel()]));

    let lowest = -Infinity;
    for (const level of levels) {
      // Its name stands above the line, or below the name of the line above.
      lowest = Math.max(y(level.y) - 4, lowest + 13);
      svg.append(
        element("line", { x1: left, x2: width - right, y1: y(level.y), y2: y(level.y), class: "baseline" }),
        element("text", { x: width - right - 6, y: lowest, class: "tick end" }, [`${level.label} ${written(level.y, chart.form)}`]),
      );
    }
    const alone = (line) => !series.some((other) => other.strong && other.run === line.run);
    const weightOf = (line) => (line.strong ? "strong" : alone(line) ? "alone" : "faint");
    for (const line of [...series].sort((a, b) => Number(a.strong) - Number(b.strong))) {
      if (!line.dotsOnly) {
        svg.append(element("path", { d: path(line.points, x, y), class: `curve ${weightOf(line)} ${colour(line)}` }));
      }
      const apart = (x(line.known[line.known.length - 1].x) - x(line.known[0].x)) / line.known.length;
      if (line.dotsOnly || line.known.length === 1 || (line.strong && line.known.length > 1 && apart > 18)) {
        for (const point of line.known) {
          const r = line.dotsOnly ? 3 : 2.5;
          svg.append(element("circle", { cx: x(point.x), cy: y(point.y), r, class: `dot ${colour(line)}` }));
        }
      }
    }
    for (const label of spread(labels, y, top, bottom)) {
      const last = label.series.known[label.series.known.length - 1];
      svg.append(
        element("text", { x: x(last.x) + 8, y: label.at + 4, class: `label ${weightOf(label.series)} ${colour(label.series)}` }, [
          label.text,
        ]),
      );
    }
    const cursor = element("g", { "aria-hidden": "true" });
    svg.append(cursor);
    const places = [...new Set(known.map((point) => point.x))].sort((a, b) => a - b);
    const gap = ((xMost - xLeast) / Math.max(places.length, 1)) * 2;
    return { svg, cursor, series, places, gap, x, y, top, bottom };
  }

  // What stands at the end of a line: its newest value, and its name where there is room and need for one.
  function endLabels(chart, series, narrow) {
    const strong = series.filter((line) => line.strong && !line.dotsOnly);
    const labelled =
      data.runs.length > 1 && strong.length
        ? series.filter((line) => line.strong || !strong.some((other) => other.run === line.run))
        : series.filter((line) => !line.dotsOnly);
    if (labelled.length > 8) return [];
    return labelled.map((line) => {
      const value = written(line.known[line.known.length - 1].y, chart.form);
      const wanted = data.runs.length > 1 ? data.runs[line.run].name : several(chart, line.run) ? line.label : "";
      const named = !narrow && wanted && wanted.length <= 18 ? `${value} ${wanted}` : value;
      return { series: line, text: named };
    });
  }

  function spread(labels, y, top, bottom) {
    const apart = 15;
    const placed = labels
      .map((label) => ({ ...label, at: y(label.series.known[label.series.known.length - 1].y) }))
      .sort((a, b) => a.at - b.at);
    for (let i = 0; i < placed.length; i++) {
      placed[i].at = Math.max(placed[i].at, i ? placed[i - 1].at + apart : top);
    }
    for (let i = placed.length - 1; i >= 0; i--) {
      placed[i].at = Math.min(placed[i].at, i < placed.length - 1 ? placed[i + 1].at - apart : bottom);
    }
    return placed;
  }

  function path(points, x, y) {
    let pen = "M";
    let drawn = "";
    for (const point of points) {
      if (point.y === null) {
        pen = "M";
        continue;
      }
      drawn += `${pen}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`;
      pen = "L";
    }
    return drawn;
  }

  // Round numbers that enclose the values: steps of 1, 2 or 5 times a power of ten.
  function ticks(least, most, count, whole) {
    if (most <= least) {
      const pad = Math.abs(most) / 10 || 1;
      [least, most] = [least - (least ? pad : 0), most + pad];
    }
    const rough = (most - least) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
    if (whole) step = Math.max(1, step);
    const [from, to] = [Math.floor(least / step + 1e-9) * step, Math.ceil(most / step - 1e-9) * step];
    const values = [];
    for (let i = 0; from + i * step <= to + step / 2; i++) values.push(Number((from + i * step).toPrecision(12)));
    return { values, step, from: values[0], to: values[values.length - 1] };
  }

  function scale(from, to, start, end) {
    const place = (value) => start + ((value - from) / (to - from)) * (end - start);
    place.invert = (pixel) => from + ((pixel - start) / (end - start)) * (to - from);
    return place;
  }

  function nearest(sorted, value) {
    let best = 0;
    for (let i = 1; i < sorted.length; i++) {
      if (Math.abs(sorted[i] - value) < Math.abs(sorted[best] - value)) best = i;
    }
    return best;
  }

  // The point of a series at a place; none where the series has not begun, or is over.
  function pointAt(series, value, gap) {
    const points = series.known;
    const point = points[nearest(points.map((known) => known.x), value)];
    const over = value > points[points.length - 1].x + gap || value < points[0].x - gap;
    return over ? null : point;
  }

  function several(chart, run) {
    return chart.series.filter((series) => series.run === run).length > 1;
  }

  function colour(series) {
    return `run-${series.run % 8}${series.run < 8 ? "" : " again"}`;
  }

  function axisLabel() {
    const found = data.axes.find((entry) => entry.key === axis);
    return found ? found.label : axis;
  }

  function written(value, form) {
    if (form === "percent") return `${(100 * value).toFixed(1)}%`;
    if (form === "count") return Math.round(value).toLocaleString("en");
    if (form === "fixed") return value.toFixed(3);
    if (form === "fixed2") return value.toFixed(2);
    if (form === "fixed1") return value.toFixed(1);
    const text = Number(value.toPrecision(3));
    return text !== 0 && Math.abs(text) < 1e-4 ? text.toExponential() : text.toLocaleString("en", { maximumFractionDigits: 9 });
  }

  function tickText(value, step, form) {
    if (form === "percent") return `${Number((100 * value).toFixed(Math.max(0, -Math.floor(Math.log10(step * 100) + 1e-9))))}%`;
    if (form === "count") return short(value);
    if (value === 0) return "0";
    if (step < 1e-4) return Number(value.toPrecision(3)).toExponential();
    return value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  }

  function short(value) {
    for (const [size, unit] of [
      [1e9, "B"],
      [1e6, "M"],
      [1e3, "k"],
    ]) {
      if (value >= 10 * size || (value >= size && size > 1e3)) return `${Number((value / size).toPrecision(4))}${unit}`;
    }
    return value.toLocaleString("en", { maximumFractionDigits: 3 });
  }

  function textWidth(text) {
    if (!textWidth.pen) {
      textWidth.pen = document.createElement("canvas").getContext("2d");
      textWidth.pen.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
    }
    return textWidth.pen.measureText(text).width;
  }

  function element(name, attributes, children = []) {
    const svg = ["svg", "g", "line", "path", "circle", "text"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
})();
