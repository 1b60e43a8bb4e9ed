#include "atoll/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

namespace atl::cli {
namespace {

/// In single quotes; `quote` is how a shell writes one inside.
std::string in_quotes(std::string_view text, std::string_view quote = "'\\''") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out + "'";
}

/// The paths of all commands but the root, each as a pattern of `case`.
std::string command_patterns(const std::vector<PlacedCommand>& placed) {
  std::vector<std::string> patterns;
  for (size_t i = 1; i < placed.size(); ++i) patterns.push_back('"' + placed[i].path + '"');
  return fmt::format("{}", fmt::join(patterns, " | "));
}

std::vector<std::string> option_names(const Command& command) {
  std::vector<std::string> names;
  for (const CommandOption& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> command_names(const Command& command) {
  std::vector<std::string> names;
  for (const Command& one : command.commands) names.push_back(one.name);
  return names;
}

std::vector<std::string> setting_words(const SettingList& settings) {
  std::vector<std::string> words;
  for (const Setting& setting : settings.settings()) words.push_back("--" + setting.name() + "=");
  return words;
}

/// Branches of `case "$command $previous"`: what may follow an option that has choices. `open` is
/// what comes before a pattern; `write` gives the words.
template <typename Write>
std::string choice_branches(const std::vector<PlacedCommand>& placed, std::string_view open,
                            const Write& write) {
  std::string text;
  for (const auto& [path, command] : placed) {
    for (const CommandOption& option : command->options) {
      if (option.choices.empty()) continue;
      for (const std::string& name : option.names) {
        text += fmt::format("    {}\"{} {}\") {} ;;\n", open, path, name, write(option.choices));
      }
    }
  }
  return text;
}

constexpr const char* kBash = R"(# Completion of atoll for bash; `atoll completion bash` made it.
_atoll() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command=atoll commands="" options="" settings="" choices=""
  local -i i
  if [[ $current == = ]]; then  # --section.key=VALUE is three words here.
    current=""
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {patterns}) command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  settings={settings}
  case $command in
{branches}    *) settings="" ;;
  esac
  case "$command $previous" in
{choices}  esac
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options $settings" -- "$current")
    [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
  return 0
}}
complete -o bashdefault -o default -F _atoll atoll
)";

constexpr const char* kZsh = R"(#compdef atoll
# Completion of atoll for zsh; `atoll completion zsh` made it.
_atoll() {{
  local command=atoll
  local -a commands options settings choices
  local -i i
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command ${{words[i]}}" in
      ({patterns}) command="$command ${{words[i]}}" ;;
    esac
  done
  settings=({settings})
  case $command in
{branches}    (*) settings=() ;;
  esac
  case "$command ${{words[CURRENT - 1]}}" in
{choices}  esac
  if (( $#choices )); then
    compadd -a choices
  elif [[ $PREFIX == --*.*=* ]]; then
    compset -P '*='
    case $IPREFIX in
{setting_choices}      (*) _files ;;
    esac
  elif [[ $PREFIX == -* ]]; then
    _describe -o option options
    compadd -S '' -a settings
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
_atoll "$@"
)";

constexpr const char* kFish = R"(# Completion of atoll for fish; `atoll completion fish` made it.
set -g __atoll_commands {commands}
function __atoll_at --description 'whether the words so far name this command'
    set -l command atoll
    for word in (commandline -opc)[2..-1]
        if contains -- "$command $word" $__atoll_commands
            set command "$command $word"
        end
    end
    contains -- "$command" $argv
end
)";

constexpr std::string_view kFishQuote = "\\'";

/// `complete` for one place, without its end.
std::string fish_line(const std::vector<std::string>& paths) {
  std::vector<std::string> words;
  for (const std::string& path : paths) words.push_back('"' + path + '"');
  return fmt::format("complete -c atoll -n '__atoll_at {}'", fmt::join(words, " "));
}

std::string fish_takes(bool takes_argument, const std::vector<std::string>& choices) {
  if (!choices.empty()) return fmt::format(" -x -a '{}'", fmt::join(choices, " "));
  return takes_argument ? " -r" : "";
}

}  // namespace

std::string bash_completion(const Command& root, const SettingList& settings) {
  const std::vector<PlacedCommand> placed = all_commands(root);
  std::string branches;
  for (const auto& [path, command] : placed) {
    branches +=
        fmt::format("    \"{}\") commands=\"{}\" options=\"{}\"{} ;;\n", path,
                    fmt::join(command_names(*command), " "), fmt::join(option_names(*command), " "),
                    command->takes_settings ? "" : " settings=\"\"");
  }
  const auto write = [](const std::vector<std::string>& choices) {
    return fmt::format("choices=\"{}\"", fmt::join(choices, " "));
  };
  std::string choices = choice_branches(placed, "", write);
  for (const Setting& setting : settings.settings()) {
    if (setting.choices.empty()) continue;
    choices += fmt::format("    *\" --{}\") {} ;;\n", setting.name(), write(setting.choices));
  }
  return fmt::format(
      kBash, fmt::arg("patterns", command_patterns(placed)),
      fmt::arg("settings", in_quotes(fmt::format("{}", fmt::join(setting_words(settings), " ")))),
      fmt::arg("branches", branches), fmt::arg("choices", choices));
}

std::string zsh_completion(const Command& root, const SettingList& settings) {
  const std::vector<PlacedCommand> placed = all_commands(root);
  std::string branches;
  for (const auto& [path, command] : placed) {
    branches += fmt::format("    (\"{}\")\n      commands=(", path);
    for (const Command& one : command->commands) {
      branches += in_quotes(one.name + ":" + one.description) + " ";
    }
    branches += ")\n      options=(";
    for (const CommandOption& option : command->options) {
      for (const std::string& name : option.names) {
        branches += in_quotes(name + ":" + option.help) + " ";
      }
    }
    branches += command->takes_settings ? ") ;;\n" : ")\n      settings=() ;;\n";
  }
  const auto write = [](const std::vector<std::string>& choices) {
    return fmt::format("choices=({})", fmt::join(choices, " "));
  };
  std::string setting_choices;
  for (const Setting& setting : settings.settings()) {
    if (setting.choices.empty()) continue;
    setting_choices += fmt::format("      (\"--{}=\") compadd -- {} ;;\n", setting.name(),
                                   fmt::join(setting.choices, " "));
  }
  return fmt::format(
      kZsh, fmt::arg("patterns", command_patterns(placed)),
      fmt::arg("settings", fmt::format("{}", fmt::join(setting_words(settings), " "))),
      fmt::arg("branches", branches), fmt::arg("choices", choice_branches(placed, "(", write)),
      fmt::arg("setting_choices", setting_choices));
}

std::string fish_completion(const Command& root, const SettingList& settings) {
  const std::vector<PlacedCommand> placed = all_commands(root);
  std::vector<std::string> paths;
  std::vector<std::string> with_settings;
  std::string lines;
  for (const auto& [path, command] : placed) {
    paths.push_back('"' + path + '"');
    if (command->takes_settings) with_settings.push_back(path);
    for (const Command& one : command->commands) {
      lines += fmt::format("{} -f -a {} -d {}\n", fish_line({path}), one.name,
                           in_quotes(one.description, kFishQuote));
    }
    for (const CommandOption& option : command->options) {
      if (option.names.empty()) continue;
      lines += fish_line({path});
      for (const std::string& name : option.names) {
        lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      lines += fish_takes(!option.argument.empty(), option.choices);
      lines += fmt::format(" -d {}\n", in_quotes(option.help, kFishQuote));
    }
  }
  for (const Setting& setting : settings.settings()) {
    lines += fmt::format("{} -l {}{} -d {}\n", fish_line(with_settings), setting.name(),
                         fish_takes(true, setting.choices), in_quotes(setting.help, kFishQuote));
  }
  return fmt::format(kFish, fmt::arg("commands", fmt::format("{}", fmt::join(paths, " ")))) + lines;
}

}  // namespace atl::cli
