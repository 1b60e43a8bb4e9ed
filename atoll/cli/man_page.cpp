#include "atoll/cli/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

namespace atl::cli {
namespace {

/// Words as they are: what would be a command of roff, or a typographic hyphen, is none.
std::string plain(std::string_view text) {
  std::string escaped;
  bool is_line_start = true;
  for (const char c : text) {
    if (is_line_start && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
    is_line_start = c == '\n';
  }
  return escaped;
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + plain(text) + "\\fR"; }

std::string option_text(const CommandOption& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(bold(name));
  std::string head =
      names.empty() ? italic(option.place) : fmt::format("{}", fmt::join(names, ", "));
  if (!option.argument.empty()) {
    head += " ";
    head += option.choices.empty() ? italic(option.argument)
                                   : plain(fmt::format("{{{}}}", fmt::join(option.choices, ",")));
    if (option.repeats) head += " ...";
  }
  if (option.is_required) head += " (required)";
  std::string text = fmt::format(".TP\n{}\n{}\n", head, plain(option.help));
  if (!option.usual.empty()) text += plain(fmt::format("(usually {})\n", option.usual));
  return text;
}

std::string command_text(const PlacedCommand& placed) {
  const Command& command = *placed.command;
  std::string usage = bold(placed.path);
  for (const CommandOption& option : command.options) {
    if (option.place.empty()) continue;
    const std::string words = italic(option.place) + (option.repeats ? " ..." : "");
    usage += option.is_required ? " " + words : " [" + words + "]";
  }
  if (command.takes_settings) usage += fmt::format(" [{}]", bold("--section.key=value"));
  std::string text = fmt::format(".SS {}\n{}\n", usage, plain(command.description));
  for (const CommandOption& option : command.options) {
    if (option.names != std::vector<std::string>{"-h", "--help"}) text += option_text(option);
  }
  if (command.footer.empty()) return text;
  return text + fmt::format(".PP\n.nf\n{}\n.fi\n", plain(command.footer));
}

constexpr const char* kEnd = R"(.SH EXIT STATUS
0 where all went well, 1 where it failed, 2 for a command line or a setting that is wrong, 130
after Ctrl\-C.
.SH ENVIRONMENT
.TP
\fBGOMP_SPINCOUNT\fR, \fBOMP_WAIT_POLICY\fR
How long threads that wait for each other keep their cores (GNU's OpenMP). Where neither is set,
\fBatoll\fR lets them sleep while other processes want the cores.
)";

}  // namespace

std::string man_page(const Command& root, const SettingList& settings, const std::string& version) {
  std::string page = fmt::format(
      ".TH {0} 1 \"\" \"{1}\" \"User Commands\"\n.SH NAME\n{2} \\- {3}\n.SH SYNOPSIS\n{4} {5} "
      "[{6}] ...\n.SH DESCRIPTION\n{3}\n{7}\n.SH COMMANDS\n",
      "ATOLL", plain(version), plain(root.name), plain(root.description), bold(root.name),
      italic("COMMAND"), italic("OPTION"),
      plain("--help after any command explains it, with an example."));
  for (const PlacedCommand& placed : all_commands(root)) {
    if (placed.command->commands.empty()) page += command_text(placed);
  }
  page += fmt::format(
      ".SH SETTINGS\nCommands that train take any of them as {}, and from a file of TOML.\n",
      bold("--section.key=value"));
  for (const Setting& setting : settings.settings()) {
    page += fmt::format(".TP\n{}={}\n{}\n", bold("--" + setting.name()), plain(setting.text()),
                        plain(setting.help));
  }
  return page + kEnd;
}

}  // namespace atl::cli
