// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"io"
	"testing"

	"github.com/spf13/cobra"
)

// A program that serves by itself and has commands, as the hub.
func newProgram() *cobra.Command {
	root := &cobra.Command{Use: "hub [flags]", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return errors.New("ran") },
		SilenceErrors: true, SilenceUsage: true}
	root.Flags().String("listen", "", "")
	move := &cobra.Command{Use: "migrate --from A", Args: cobra.NoArgs, RunE: root.RunE}
	move.Flags().Int("from", 0, "")
	_ = move.MarkFlagRequired("from")
	root.AddCommand(move)
	Explain(root)
	root.SetOut(io.Discard)
	return root
}

func TestWrongCommandLines(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
		code int
	}{
		{nil, "ran", 1},
		{[]string{"--listn=x"}, "there is no flag --listn of hub; did you mean --listen?", ExitCode},
		{[]string{"--other"}, "unknown flag: --other", ExitCode},
		{[]string{"migrat"}, "there is no hub migrat; did you mean migrate? There are: completion, migrate", ExitCode},
		{[]string{"migrate"}, "missing: --from", ExitCode},
		{[]string{"migrate", "--from=x"}, `--from: "x" is not valid, want a whole number`, ExitCode},
		{[]string{"migrate", "--from=1", "more"}, "migrate takes no arguments; usage: hub migrate --from A [flags]", ExitCode},
		{[]string{"migrate", "--from=1"}, "ran", 1},
	} {
		root := newProgram()
		root.SetArgs(append([]string{}, tt.args...))
		err := Of(root.Execute())
		if err == nil || err.Error() != tt.want || Code(err) != tt.code {
			t.Errorf("%v: %v (%d), want %s (%d)", tt.args, err, Code(err), tt.want, tt.code)
		}
	}
	if Code(nil) != 0 {
		t.Error("no error has a code")
	}
}
