// SPDX-License-Identifier: Apache-2.0

//go:build k9s

package kubeproxy_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/wait"
)

// screen is what a terminal has got, without its control sequences.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
}

var control = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|\\][^\a]*\a|[()=>][0-9A-Z]?)")

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// shows waits until the screen has shown a text, and forgets what it has shown.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	wait.For(t, patience, "k9s to show "+text, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		plain := control.ReplaceAllString(s.text.String(), "")
		if strings.Contains(plain, text) {
			s.text.Reset()
			return nil
		}
		return fmt.Errorf("it shows %q", plain[max(0, len(plain)-2000):])
	})
}

// k9s, which has to be in PATH, lists Pods of the cluster through the hub, shows the log of one and opens a shell in it.
func TestK9s(t *testing.T) {
	alice := as(t, "alice")
	alice.run(pod, "apply", "-f", "-")
	alice.run("", "wait", "--for=condition=Ready", "pod/talker", "--timeout=60s")
	alice.run("", "exec", "talker", "--", "sh", "-c", `echo a line for k9s >> "$`+plane.ContainerLogEnv+`"`)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, "k9s", "--kubeconfig", alice.kubeconfig, "--namespace", "shared", "--command", "pods", "--splashless")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "HOME="+home, "K9S_CONFIG_DIR="+home, "K9S_LOGS_DIR="+home,
		"PATH="+program("")+":"+filepath.Dir(planes.KubectlPath())+":"+os.Getenv("PATH"))
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	must.Succeed(t, err)
	shown := &screen{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 32<<10)
		for {
			n, err := terminal.Read(buffer)
			_, _ = shown.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = terminal.Close()
		<-read
	})
	press := func(keys string) {
		t.Helper()
		_, err := terminal.WriteString(keys)
		must.Succeed(t, err)
	}
	shown.shows(t, "talker")
	press("l")
	shown.shows(t, "a line for k9s")
	press("\x1b")
	shown.shows(t, "talker")
	press("s")
	shown.shows(t, "K9s-Shell")
	press("echo in $((40+2)) by a shell\r")
	shown.shows(t, "in 42 by a shell")
	alice.run("", "delete", "pod", "talker")
}
