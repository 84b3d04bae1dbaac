// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/pkg/reach"
)

const (
	// exitNotRun is the exit code if the exit status of the command is unknown, as in ssh.
	exitNotRun = 255
	// exitInterrupted is a shell's code for Ctrl-C.
	exitInterrupted = 130
)

func execCommand(a *app) *cobra.Command {
	var stdin, tty bool
	var container string
	cmd := &cobra.Command{
		Use:   "exec [flags] ID -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox, in whatever cluster it is",
		Long: `Run a command in a sandbox, in whatever cluster it is.

The command is run as it is, without a shell; for pipes and variables: -- sh -c '...'. What it prints comes out here,
stdout and stderr apart, and atollctl exits with the command's exit code. 255 means that how it ended is not known: it was
not run, or the connection broke.

With -i the command reads what atollctl reads. With -t it has a terminal, whose size follows this one's; with both it is
like sitting there. A command is not ended by losing its caller, only by the release of the sandbox. What is said in
either direction counts as activity, so a sandbox in use does not end as idle.`,
		Example: `  atollctl exec 01j9zq3p3k5m8x7c2v4b6n8d0f-east -- python -V
  atollctl exec -it 01j9zq3p3k5m8x7c2v4b6n8d0f-east -- sh
  tar c src | atollctl exec -i 01j9zq3p3k5m8x7c2v4b6n8d0f-east -- tar x -C /work`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: firstOnly(a.completeSandboxes),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, command := args[0], args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			query := url.Values{"command": command, "stdin": {strconv.FormatBool(stdin)}, "tty": {strconv.FormatBool(tty)}}
			if container != "" {
				query.Set("container", container)
			}
			e := &execution{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), stdin: stdin, tty: tty}
			code, err := e.run(cmd.Context(), a, id, query)
			if err != nil {
				if err = a.explainGone(cmd.Context(), id, err); exitCodeOf(err) == exitEnded {
					return err
				}
				reportError(cmd.ErrOrStderr(), err)
			}
			if code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false) // arguments after the id belong to the command
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "let the command read what atollctl reads")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	cmd.Flags().StringVarP(&container, "container", "c", "",
		"which container of the sandbox's Pod, if callers reach it; default the sandbox's own")
	return cmd
}

// execution is a running command.
type execution struct {
	in          io.Reader
	out, errOut io.Writer
	stdin, tty  bool

	conn *websocket.Conn
	mu   sync.Mutex // for writes
}

// run returns the exit code, and an error if the code is not the command's own.
func (e *execution) run(ctx context.Context, a *app, id string, query url.Values) (code int, err error) {
	p, err := a.place(ctx)
	if err != nil {
		return exitNotRun, err
	}
	if e.conn, err = p.connect(ctx, id, "exec", query, reach.ExecProtocol); err != nil {
		return exitNotRun, err
	}
	defer func() { _ = e.conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = e.conn.Close() })()
	if e.tty {
		restore, err := e.takeTerminal()
		if err != nil {
			return exitNotRun, err
		}
		defer restore()
	}
	if e.stdin {
		go e.feed()
	}
	code, err = e.hear()
	if ctx.Err() != nil {
		return exitInterrupted, nil
	}
	return code, err
}

// takeTerminal puts the terminal into raw mode, and follows its size.
func (e *execution) takeTerminal() (restore func(), err error) {
	file, ok := e.in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func() {}, nil
	}
	resized, stop := onResize()
	over := make(chan struct{})
	go func() {
		for {
			if width, height, err := term.GetSize(int(file.Fd())); err == nil {
				_ = e.say(reach.ChannelResize, []byte(fmt.Sprintf(`{"Width":%d,"Height":%d}`, width, height)))
			}
			select {
			case <-resized:
			case <-over:
				return
			}
		}
	}()
	end := func() {
		stop()
		close(over)
	}
	if !e.stdin {
		return end, nil
	}
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		end()
		return nil, fmt.Errorf("taking the terminal over: %w", err)
	}
	return func() {
		end()
		_ = term.Restore(int(file.Fd()), before)
	}, nil
}

func (e *execution) say(channel byte, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, data...))
}

// feed sends standard input piece by piece, to its end.
func (e *execution) feed() {
	buffer := make([]byte, reach.MaxMessage-1)
	for {
		n, err := e.in.Read(buffer)
		if n > 0 && e.say(reach.ChannelStdin, buffer[:n]) != nil {
			return
		}
		if err != nil {
			_ = e.say(reach.ChannelClose, []byte{reach.ChannelStdin})
			return
		}
	}
}

var errBroke = errors.New("the connection broke before the command had ended")

// withoutInternal removes the prefixes that the API server and the kubelet put before the reason why a command did not start.
func withoutInternal(message string) string {
	const said = "Internal error occurred: "
	for strings.HasPrefix(message, said) {
		message = strings.TrimPrefix(message, said)
	}
	return message
}

// hear prints the command's output until its exit status arrives, and returns that status.
func (e *execution) hear() (code int, err error) {
	var status []byte
	for {
		_, message, err := e.conn.ReadMessage()
		switch {
		case err != nil && len(status) > 0:
			return exitOf(status)
		case err != nil:
			return exitNotRun, fmt.Errorf("%w: %w", errBroke, err)
		case len(message) == 0:
			continue
		}
		switch message[0] {
		case reach.ChannelStdout:
			_, err = e.out.Write(message[1:])
		case reach.ChannelStderr:
			_, err = e.errOut.Write(message[1:])
		case reach.ChannelStatus:
			status = append(status, message[1:]...)
		}
		if err != nil {
			return exitNotRun, fmt.Errorf("printing what the command says: %w", err)
		}
	}
}

func exitOf(text []byte) (code int, err error) {
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return exitNotRun, fmt.Errorf("reading how the command ended: %w", err)
	}
	if status.Status == metav1.StatusSuccess {
		return 0, nil
	}
	if status.Reason == "NonZeroExitCode" && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if code, err := strconv.Atoi(cause.Message); cause.Type == "ExitCode" && err == nil {
				return code, nil
			}
		}
	}
	return exitNotRun, errors.New(withoutInternal(status.Message))
}
