package cli

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rouse-dev/rouse/cmd/internal/render"
)

func runCommand() *cobra.Command {
	var o chatOptions
	var quiet, noHistory bool
	cmd := &cobra.Command{
		Use:   "run NAME|MODEL [PROMPT …]",
		Short: "Ask a function, or a model, and stream its answer",
		Long: `Ask a function and stream its answer. A MODEL is a GGUF file, hf.co/ORG/NAME[:QUANT], ollama://NAME, or any
other reference that rouse up --model takes: it is fetched, declared, and started. Where no server runs, one
serves for as long as the command takes. A name that no function has is looked up among the models that Ollama has
pulled here: they are served where they lie.

Without a PROMPT it is read from standard input; on a terminal that becomes a conversation, a line a turn:

  arrow keys, Ctrl-A, Ctrl-E, Ctrl-K, …   edit the line; up and down go through the lines typed before
  """                                     begins and ends a turn of several lines; what is pasted is one turn too
  /set, /clear, /?, /bye                  settings, forget what was said, help, leave
  Ctrl-C                                  ends an answer, then the conversation; Ctrl-D ends the conversation

Lines are kept in $XDG_STATE_HOME/rouse/history (~/.local/state), which only you can read; --no-history or
$ROUSE_NO_HISTORY=1 keeps none. What the answer took (hold, wake, first token, tokens per second) goes to standard
error.`,
		Args: cobra.MinimumNArgs(1),
		Example: `  rouse run pico "echo hello world"
  rouse run ./qwen2.5-0.5b-instruct-q8_0.gguf "Say hello."
  rouse run hf.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0
  rouse run ollama://qwen2.5:0.5b`,
		ValidArgsFunction: functionNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := dialFor(cmd, args[0])
			if err != nil {
				return err
			}
			defer t.end()
			o.model = t.name
			chat := &conversation{client: t.client, door: t.door, meant: t.meant, options: o, out: render.Harmless(cmd.OutOrStdout()), errs: cmd.ErrOrStderr(), quiet: quiet}
			if render.IsTerminal(cmd.ErrOrStderr()) {
				chat.bar = newWaitBar(cmd.ErrOrStderr())
			}
			if dir := stateFolder(); dir != "" && !noHistory && os.Getenv("ROUSE_NO_HISTORY") == "" {
				chat.history = filepath.Join(dir, "history")
			}
			return chat.run(cmd.Context(), strings.Join(args[1:], " "), cmd.InOrStdin())
		},
	}
	s := cmd.Flags()
	setting(s, &o.maxTokens, "max-tokens", "most tokens to generate, a `number`; 0: the model's own limit", whole)
	setting(s, &o.temperature, "temperature", "a `number` from 0 to 2; 0 is greedy, and the same answer each time", number(2))
	s.StringVar(&o.system, "system", "", "system message")
	s.BoolVarP(&quiet, "quiet", "q", false, "print the answer only")
	s.BoolVar(&noHistory, "no-history", false, "keep no history of what is typed in a conversation")
	return cmd
}
