// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
)

// What is wrong with a command line is told in words of this program, with its usage.
func TestAWrongCommandLineIsExplained(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for line, want := range map[string]string{
		"exec x":       "exec takes at least 2 arguments, and 1 was given; usage: atollctl exec [flags] ID -- COMMAND",
		"touch":        "touch takes at least 1 argument, and 0 were given; usage: atollctl touch ID... [flags]\n",
		"ps":           "ps takes 1 argument, and 0 were given; usage: atollctl ps ID [flags]\n",
		"get envs x y": "envs takes at most 1 argument, and 2 were given; usage: ",
		"update x":     "one of --idle-timeout, --max-lifetime is needed\n",
		"simulate --trace t.csv --scenario daily": "only one of --trace, --scenario can be given\n",
		"hub migrate":               "missing: --from, --to\n",
		"create --env python extra": `create takes no arguments, and "extra" is one; a command is run by exec in the sandbox, or by run`,
		"run --env python":          "usage: atollctl run --env [NAMESPACE/]NAME [flags] -- COMMAND [ARG...]\n",
		"logout":                    "no context is in use; name one with --context, or make one by atollctl config set-context\n",
		"explain --sandbox x-east --claim-key build": "only one of --sandbox, --claim-key can be given\n",
	} {
		err := command(t.Context(), io.Discard, io.Discard, strings.Fields(line)...)
		if err == nil || exitCodeOf(err) != exitUsage {
			t.Errorf("%s: %v, want a usage error", line, err)
			continue
		}
		var out bytes.Buffer
		if reportError(&out, err); !strings.Contains(out.String(), want) {
			t.Errorf("%s:\n%swant %s", line, out.String(), want)
		}
	}
}

// A claim that was cancelled while it waited never had a sandbox to name.
func TestACancelledClaimIsNoSandbox(t *testing.T) {
	err := usable(&sandboxv1.Sandbox{Phase: sandboxv1.Phase_ENDED, StopReason: "Canceled", ClaimKey: "k"})
	const want = `the claim has ended: Canceled; claim key "k" stands for it: another sandbox needs another key`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// An audit without a file does not wait for a terminal, and says what it waits for where nothing comes through a pipe.
func TestAuditDoesNotWaitInSilence(t *testing.T) {
	_, terminal, err := pty.Open()
	must.Succeed(t, err)
	defer terminal.Close()
	cmd := newRoot()
	cmd.SetIn(terminal)
	cmd.SetArgs([]string{"audit"})
	err = cmd.ExecuteContext(t.Context())
	if err == nil || exitCodeOf(err) != exitUsage || !strings.Contains(err.Error(), "atollctl audit FILE") {
		t.Errorf("from a terminal: %v, want a usage error", err)
	}

	in, feed := io.Pipe()
	told, errs := io.Pipe()
	cmd = newRoot()
	cmd.SetIn(in)
	cmd.SetOut(io.Discard)
	cmd.SetErr(errs)
	cmd.SetArgs([]string{"audit"})
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- cmd.ExecuteContext(t.Context()) }()
	text := make([]byte, 512)
	n, err := told.Read(text)
	if err != nil || !strings.Contains(string(text[:n]), "waiting for lines of an audit") || time.Since(began) < stdinPatience {
		t.Errorf("after %s: %q, %v", time.Since(began), text[:n], err)
	}
	must.Succeed(t, feed.Close())
	must.Succeed(t, <-ended)
}

// What matches nothing says so.
func TestAuditWithoutAMatch(t *testing.T) {
	out, errs, err := runAudit(t, auditLines, "--verb", "forget")
	if err != nil || out != "" || !strings.Contains(errs, "none of 3 lines matches") || !strings.Contains(errs, "1 line is no line of") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}
