// SPDX-License-Identifier: Apache-2.0
#include "hone/report/html.h"

#include <cmath>

#include "hone/core/check.h"
#include "hone/report/bundle.h"

namespace hone::report {
namespace {

void open_caption(std::string& out, const std::string& title, const std::string& note) {
  out += "<figure>\n";
  if (title.empty() && note.empty()) return;
  out += concat("<figcaption><b>", escape_markup(title), "</b>");
  if (!note.empty()) out += concat("<span>", escape_markup(note), "</span>");
  out += "</figcaption>\n";
}

template <class Chart>
void write_legend(std::string&, const Chart&) {}

void write_legend(std::string& out, const PointCloud& cloud) {
  if (cloud.groups.size() > kGroupColors) return;
  out += "<ul class=\"legend\">";
  for (std::size_t i = 0; i < cloud.groups.size(); ++i) {
    out += concat("<li class=\"", group_color(i), "\">", escape_markup(cloud.groups[i]), "</li>");
  }
  out += "</ul>\n";
}

template <class Chart>
void write_chart(std::string& out, const Chart& chart) {
  open_caption(out, chart.title, chart.note);
  write_legend(out, chart);
  out += concat("<div class=\"wide\">", draw(chart, ChartWidth::Wide), "</div>\n");
  out += concat("<div class=\"phone\">", draw(chart, ChartWidth::Phone), "</div>\n</figure>\n");
}

void write_block(std::string& out, const LineChart& chart) { write_chart(out, chart); }
void write_block(std::string& out, const ScatterChart& chart) { write_chart(out, chart); }
void write_block(std::string& out, const BarChart& chart) { write_chart(out, chart); }
void write_block(std::string& out, const Heatmap& map) { write_chart(out, map); }
void write_block(std::string& out, const PointCloud& cloud) { write_chart(out, cloud); }

void write_block(std::string& out, const Pictures& pictures) {
  open_caption(out, pictures.title, pictures.note);
  out += "<div class=\"pictures\">\n";
  for (const Picture& picture : pictures.pictures) {
    out += concat("<div", picture.marked ? " class=\"marked\"" : "", ">", draw(picture), "<b>",
                  escape_markup(picture.name), "</b><span>", escape_markup(picture.note),
                  "</span></div>\n");
  }
  out += "</div>\n</figure>\n";
}

void write_paragraphs(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const auto end = std::min(text.find("\n\n"), text.size());
    if (end > 0) out += concat("<p>", escape_markup(text.substr(0, end)), "</p>\n");
    text.remove_prefix(std::min(end + 2, text.size()));
  }
}

void write_block(std::string& out, const Prose& prose) { write_paragraphs(out, prose.text); }

std::string unit_mark(const Figure& figure) {
  return figure.unit.empty() ? "" : concat("<i>", escape_markup(figure.unit), "</i>");
}

// Writes the value and below it, on a line each, its interval and its sample count with, unless
// the value is measured, its label.
void write_figure_cell(std::string& out, Figure figure, int decimals) {
  if (figure.decimals < 0) figure.decimals = decimals;
  const bool is_known = std::isfinite(figure.value);
  const std::string sort_key = is_known ? Json(figure.value).dump() : "";
  out += concat("<td data-v=\"", sort_key, "\">", format_number(figure.value, figure.decimals));
  if (is_known) out += unit_mark(figure);
  std::string basis;
  if (figure.n > 0) basis = concat("n ", format_number(static_cast<double>(figure.n)));
  if (figure.label != FigureLabel::Measured) {
    basis += concat(basis.empty() ? "" : " ", name_of(figure.label));
  }
  for (const std::string& detail : {format_interval(figure), basis}) {
    if (!detail.empty()) out += concat("<small>", detail, "</small>");
  }
  out += "</td>";
}

void write_cell(std::string& out, const TableCell& cell, int decimals) {
  if (const auto* figure = std::get_if<Figure>(&cell)) {
    write_figure_cell(out, *figure, decimals);
  } else {
    const std::string text = escape_markup(std::get<std::string>(cell));
    out += concat("<td class=\"text\" data-v=\"", text, "\">", text, "</td>");
  }
}

struct ColumnStyle {
  bool is_text = true;  // no cell is a figure
  int decimals = -1;    // common to all its figures; -1 if one is too small for that
};

ColumnStyle style_of(const Table& table, std::size_t column) {
  ColumnStyle style;
  bool has_tiny = false;
  for (const auto& row : table.rows) {
    const auto* figure = std::get_if<Figure>(&row[column]);
    if (figure == nullptr) continue;
    style.is_text = false;
    style.decimals = std::max(style.decimals, decimals_shown(figure->value));
    has_tiny = has_tiny || (figure->value != 0 && std::abs(figure->value) < 1e-4);
  }
  if (has_tiny) style.decimals = -1;
  return style;
}

void write_block(std::string& out, const Table& table) {
  for (const auto& row : table.rows) {
    HONE_CHECK(row.size() == table.columns.size(), concat("table ", table.title),
               concat(table.columns.size(), " cells in each row"), row.size());
  }
  std::vector<ColumnStyle> styles;
  for (std::size_t i = 0; i < table.columns.size(); ++i) styles.push_back(style_of(table, i));
  open_caption(out, table.title, table.note);
  out += "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    out += concat("<th scope=\"col\"", styles[i].is_text ? " class=\"text\"" : "",
                  "><button type=\"button\">", escape_markup(table.columns[i]), "</button></th>");
  }
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const bool is_chosen = static_cast<int>(i) == table.highlighted_row;
    out += is_chosen ? "<tr class=\"chosen\">" : "<tr>";
    for (std::size_t k = 0; k < styles.size(); ++k) {
      write_cell(out, table.rows[i][k], styles[k].decimals);
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n</figure>\n";
}

void write_block(std::string& out, const Samples& samples) {
  open_caption(out, samples.title, "");
  for (const Sample& sample : samples.samples) {
    out += concat("<blockquote><header><b>", escape_markup(sample.name), "</b>",
                  escape_markup(sample.note), "</header><p><strong>", escape_markup(sample.prompt),
                  "</strong>", escape_markup(sample.text), "</p></blockquote>\n");
  }
  out += "</figure>\n";
}

void write_block(std::string& out, const MachineCard& card) {
  out += "<dl>\n";
  for (const auto& [name, value] : card.facts) {
    out += concat("<dt>", escape_markup(name), "</dt><dd>", escape_markup(value), "</dd>\n");
  }
  out += "</dl>\n";
}

void write_head(std::string& out, const Report& report) {
  out += concat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      escape_markup(report.title), "</title>\n<style>", kPageStyle, "</style>\n</head>\n");
}

void write_headlines(std::string& out, const Report& report) {
  if (report.headlines.empty()) return;
  out += "<ul class=\"headlines\">\n";
  for (const Headline& headline : report.headlines) {
    const Figure& figure = headline.figure;
    out += concat("<li class=\"headline\"><span>", escape_markup(headline.name), "</span><b>",
                  format_number(figure.value, figure.decimals));
    if (!figure.unit.empty()) out += concat("<small>", escape_markup(figure.unit), "</small>");
    out += concat("</b><span>", escape_markup(headline.note), "</span></li>\n");
  }
  out += "</ul>\n";
}

void write_contents(std::string& out, const Report& report) {
  if (report.sections.size() < 3) return;
  out += "<nav aria-label=\"Contents\">";
  for (std::size_t i = 0; i < report.sections.size(); ++i) {
    out +=
        concat("<a href=\"#part-", i + 1, "\">", escape_markup(report.sections[i].heading), "</a>");
  }
  out += "</nav>\n";
}

// Escapes "<" within the document, so that no text can end the element.
std::string embed_json(const Report& report) {
  std::string text;
  for (char c : to_json(report).dump(-1, ' ', false, Json::error_handler_t::replace)) {
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return concat("<script type=\"application/json\" id=\"report-data\">", text, "</script>\n");
}

}  // namespace

std::string render_html(const Report& report) {
  std::string out;
  write_head(out, report);
  out += concat("<body>\n<main>\n<header>\n<h1>", escape_markup(report.title),
                "</h1>\n<p class=\"subtitle\">", escape_markup(report.subtitle), "</p>\n");
  write_contents(out, report);
  out += "</header>\n";
  write_headlines(out, report);
  for (std::size_t i = 0; i < report.sections.size(); ++i) {
    const Section& section = report.sections[i];
    out += concat("<section id=\"part-", i + 1, "\">\n<h2>", escape_markup(section.heading),
                  "</h2>\n");
    if (!section.lead.empty()) {
      out += concat("<p class=\"lead\">", escape_markup(section.lead), "</p>\n");
    }
    for (const Block& block : section.blocks) {
      std::visit([&](const auto& part) { write_block(out, part); }, block);
    }
    out += "</section>\n";
  }
  if (!report.footer.empty())
    out += concat("<footer>", escape_markup(report.footer), "</footer>\n");
  out += concat("</main>\n", embed_json(report), "<script>", kPageScript,
                "</script>\n</body>\n</html>\n");
  return out;
}

}  // namespace hone::report
