// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/pkg/audit"
	"navix.sh/atoll/pkg/plural"
)

// followEvery is how often a followed file is checked for new lines.
const followEvery = 200 * time.Millisecond

// auditFlags are the flags of audit.
type auditFlags struct {
	filter       audit.Filter
	since, until string
	follow       bool
	output       string
	read, shown  int // lines
}

// auditCommand reads the files of --audit. It calls no server.
func auditCommand() *cobra.Command {
	f := auditFlags{output: "table"}
	cmd := &cobra.Command{
		Use:   "audit [FILE ...]",
		Short: "Show who did what, from the audit files of a hub",
		Long: `Show who did what, from the audit files of a hub (--audit). It asks no server: copy the files, or pipe them in.

Without a file, or with -, it reads standard input. Files that end in .gz are decompressed. Names may be patterns, in
which * stands for any text. The schema is in docs/operations.md.`,
		Example: `  atollctl audit /var/lib/atoll-hub/audit/*.log* --since 24h --outcome refused
  kubectl exec -n atoll-system atoll-hub-0 -- cat /var/lib/atoll-hub/audit/audit.log | atollctl audit --who ci --verb create
  atollctl audit audit.log --follow --sandbox '01j9zq3p3k5m8x7c2v4b6n8d0f-*' -o json`,
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "from when on: a time (RFC 3339), or how long ago, such as 24h")
	flags.StringVar(&f.until, "until", "", "until when, as --since")
	flags.StringVar(&f.filter.Who, "who", "", "name, user or team of the caller")
	flags.StringVar(&f.filter.Verb, "verb", "", "what was done, such as create, release, exec, drain, put")
	flags.StringVar(&f.filter.Resource, "resource", "", "to what, such as sandboxes, sandboxes/exec, clusters, keys, access")
	flags.StringVarP(&f.filter.Namespace, "namespace", "n", "", "namespace of it")
	flags.StringVar(&f.filter.Cluster, "cluster", "", "cluster of it")
	flags.StringVar(&f.filter.Sandbox, "sandbox", "", "id of the sandbox")
	flags.StringVar(&f.filter.Outcome, "outcome", "", "ok, refused, failed or unknown")
	flags.BoolVarP(&f.follow, "follow", "f", false, "wait for further lines of the file")
	bindEnum(cmd, flags, &f.output, "output", "o", "table, json or yaml", "table", "json", "yaml")
	return cmd
}

func (f *auditFlags) run(cmd *cobra.Command, files []string) error {
	now := time.Now()
	var err error
	if f.filter.Since, err = instant("since", f.since, now); err != nil {
		return err
	}
	if f.filter.Until, err = instant("until", f.until, now); err != nil {
		return err
	}
	if err := f.filter.Validate(); err != nil {
		return usageError{Err: err}
	}
	if len(files) == 0 {
		if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
			return usagef("a file is missing: atollctl audit FILE, or pipe an audit in; it asks no server")
		}
		files = []string{"-"}
	}
	if f.follow && (len(files) != 1 || files[0] == "-" || strings.HasSuffix(files[0], ".gz")) {
		return usagef("--follow needs one file, the current one")
	}
	out := f.printer(cmd.OutOrStdout())
	bad := 0
	var errs []error
	for _, name := range files { // also after one that cannot be read to its end
		n, err := f.readFile(cmd, name, out)
		bad, errs = bad+n, append(errs, err)
	}
	failed := errors.Join(errs...)
	if bad > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "atollctl: %s of an audit, such as one that a crash has cut\n",
			plural.Form(bad, "line is no line", "lines are no lines"))
	}
	if bad > 0 && f.read == 0 && failed == nil {
		return usagef("there is no line of an audit in %s", strings.Join(files, ", "))
	}
	if f.shown == 0 && f.read > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "atollctl: none of %s matches\n", plural.Of(f.read, "line"))
	}
	return errors.Join(failed, out.flush())
}

// instant parses a time, or a duration before now.
func instant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	return time.Time{}, invalidFlag(flag, text, "a time such as 2026-01-02T15:04:05Z, or how long ago, such as 24h")
}

func (f *auditFlags) readFile(cmd *cobra.Command, name string, out printer) (bad int, err error) {
	show := func(e audit.Event) error {
		if f.read++; !f.filter.Matches(&e) {
			return nil
		}
		f.shown++
		return out.print(&e)
	}
	if name == "-" {
		in := &hesitant{Reader: cmd.InOrStdin(), quiet: time.AfterFunc(stdinPatience, func() {
			fmt.Fprintln(cmd.ErrOrStderr(), "atollctl: waiting for lines of an audit on standard input; files are arguments: atollctl audit FILE")
		})}
		defer in.quiet.Stop()
		return audit.Read(in, show)
	}
	file, err := os.Open(name)
	if err != nil {
		return 0, usageError{Err: err}
	}
	defer file.Close()
	var from io.Reader = file
	if strings.HasSuffix(name, ".gz") {
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return 0, fmt.Errorf("decompressing %s: %w", name, err)
		}
		from = unpacked
	} else if f.follow {
		from = &followed{ctx: cmd.Context(), name: name, file: file, idle: out.flush}
	}
	bad, err = audit.Read(from, show)
	if errors.Is(err, context.Canceled) {
		return bad, nil // the user has ended it
	}
	if err != nil {
		return bad, fmt.Errorf("%s: %w", name, err)
	}
	return bad, nil
}

// stdinPatience is how long standard input may be silent before the user is told that the command waits for it.
const stdinPatience = 2 * time.Second

// hesitant is a reader that stops a timer at its first bytes or at its end.
type hesitant struct {
	io.Reader
	quiet *time.Timer
}

func (h *hesitant) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if n > 0 || err != nil {
		h.quiet.Stop()
	}
	return n, err
}

// followed is a file that grows, and is replaced when it is rotated.
type followed struct {
	ctx  context.Context
	name string
	file *os.File
	idle func() error // called before it waits
}

func (f *followed) Read(p []byte) (int, error) {
	for {
		n, err := f.file.Read(p)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := f.idle(); err != nil {
			return 0, err
		}
		if next := f.rotated(); next != nil {
			// Lines that were written between the last read and the rotation are still in the old file.
			if n, _ := f.file.Read(p); n > 0 {
				_ = next.Close()
				return n, nil
			}
			_ = f.file.Close()
			f.file = next
			continue
		}
		select {
		case <-f.ctx.Done():
			return 0, context.Canceled
		case <-time.After(followEvery):
		}
	}
}

// rotated returns the file that has replaced this one, or nil.
func (f *followed) rotated() *os.File {
	mine, err := f.file.Stat()
	if err != nil {
		return nil
	}
	if now, err := os.Stat(f.name); err != nil || os.SameFile(mine, now) {
		return nil
	}
	next, err := os.Open(f.name)
	if err != nil {
		return nil
	}
	return next
}

// printer prints events.
type printer struct {
	print func(*audit.Event) error
	flush func() error
}

func (f *auditFlags) printer(w io.Writer) printer {
	buffered := bufio.NewWriter(w)
	switch f.output {
	case "json":
		encoder := json.NewEncoder(buffered)
		encoder.SetEscapeHTML(false)
		return printer{func(e *audit.Event) error { return encoder.Encode(e) }, buffered.Flush}
	case "yaml":
		return printer{func(e *audit.Event) error {
			text, err := yaml.Marshal(e)
			if err == nil {
				_, err = fmt.Fprintf(buffered, "---\n%s", text)
			}
			return err
		}, buffered.Flush}
	}
	table := tabwriter.NewWriter(buffered, 0, 4, 2, ' ', 0)
	header := false
	return printer{func(e *audit.Event) error {
		if !header {
			header = true
			fmt.Fprintln(table, "TIME\tWHO\tFROM\tVERB\tRESOURCE\tSUBJECT\tCLUSTER\tOUTCOME")
		}
		_, err := fmt.Fprintln(table, strings.Join([]string{
			e.Time.UTC().Format("2006-01-02T15:04:05Z"), dash(e.Who.Name), dash(e.From.Address), dash(verbOf(e)), dash(e.Object.Resource),
			dash(e.Subject()), dash(e.Cluster), outcomeText(e),
		}, "\t"))
		return err
	}, func() error { return errors.Join(table.Flush(), buffered.Flush()) }}
}

// verbOf returns the verb of an event, with the stage if the event is of a conversation or an intent.
func verbOf(e *audit.Event) string {
	if e.Stage == audit.Done || e.Stage == audit.Summary || e.Stage == audit.Gap {
		return e.Verb
	}
	return e.Verb + " (" + string(e.Stage) + ")"
}

// outcomeText returns the outcome with its reason and the other details that a table shows.
func outcomeText(e *audit.Event) string {
	text := dash(string(e.Outcome))
	if e.Reason != "" {
		text += ", " + e.Reason
	}
	if e.Repeat {
		text += ", again"
	}
	if e.Stage == audit.Summary {
		text += fmt.Sprintf(", %d more", e.Count)
	}
	if c := e.Conversation; c != nil && e.Stage == audit.End {
		text += fmt.Sprintf(", %s, %d bytes in, %d out", time.Duration(e.Millis)*time.Millisecond, c.BytesIn, c.BytesOut)
	}
	return text
}
