// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"k8s.io/utils/clock"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/internal/api"
	"navix.sh/atoll/pkg/link"
	"navix.sh/atoll/pkg/link/pki"
	"navix.sh/atoll/pkg/reach"
)

// teamKeys writes an API key for each team, and returns the tokens.
func teamKeys(t *testing.T, path string, teams ...string) map[string]string {
	t.Helper()
	tokens, file := map[string]string{}, []byte("keys:\n")
	for _, team := range teams {
		token, entry, err := api.NewToken(api.Key{Name: team, Team: team, AllNamespaces: true, Scopes: []api.Scope{api.ScopeClaim}})
		must.Succeed(t, err)
		tokens[team] = token
		file = append(file, bytes.TrimPrefix(entry, []byte("keys:\n"))...)
	}
	must.Succeed(t, os.WriteFile(path, file, 0o600))
	return tokens
}

// serveReach plays a worker whose sandboxes are TEAM-NUMBER. Each exec writes "hello" and goes on.
func (e *east) serveReach(files link.Files, address string) {
	e.t.Helper()
	creds, err := link.LoadCredentials(files, logr.Discard())
	must.Succeed(e.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	tunnels := link.Dial{Target: address, Credentials: creds, Clock: clock.RealClock{}, Log: logr.Discard()}.NewTunnels(nil)
	done := make(chan struct{})
	var feeds sync.WaitGroup
	e.all.Store(true)
	go func() {
		defer close(done)
		for {
			select {
			case d := <-e.claims:
				answer := &federationv1.Answer{Id: d.GetId(), Disposition: federationv1.Disposition_DONE}
				switch {
				case d.GetGet() != nil:
					answer.Result = &federationv1.Answer_Sandbox{Sandbox: sandboxOf(d.GetGet().GetId())}
				case d.GetClaim() != nil:
					sandbox := sandboxOf(sandboxID("red", 1))
					sandbox.ClaimKey = d.GetClaim().GetRequest().GetClaimKey()
					answer.Result = &federationv1.Answer_Sandbox{Sandbox: sandbox}
				case d.GetRelease() != nil:
					answer.Result = &federationv1.Answer_Sandbox{Sandbox: sandboxOf(d.GetRelease().GetId())}
				case d.GetList() != nil:
					answer.Result = &federationv1.Answer_List{List: &sandboxv1.ListSandboxesResponse{
						Sandboxes: []*sandboxv1.Sandbox{sandboxOf(sandboxID("red", 1))},
					}}
				case d.GetWatch() != nil:
					caller, err := tunnels.Open(ctx, d.GetWatch().GetToken())
					if err == nil {
						feeds.Go(func() { caller.Feed(sendOne) })
						break
					}
					answer.Error = &federationv1.Error{Code: int32(codes.Unavailable), Message: err.Error()}
				case d.GetReach() != nil:
					caller, err := tunnels.Open(ctx, d.GetReach().GetToken())
					if err != nil {
						e.t.Error(err)
						return
					}
					if err := caller.Send(append([]byte{reach.ChannelStdout}, "hello"...)); err != nil {
						e.t.Error(err)
					}
				}
				e.send <- &federationv1.WorkerFrame{Body: &federationv1.WorkerFrame_Answer{Answer: answer}}
			case <-ctx.Done():
				return
			}
		}
	}()
	e.t.Cleanup(func() {
		cancel()
		<-done
		defer feeds.Wait()
		if err := tunnels.Close(); err != nil {
			e.t.Error(err)
		}
	})
}

// sendOne sends one sandbox.
func sendOne(ctx context.Context, send func(*federationv1.SandboxChanges) error) error {
	if err := send(&federationv1.SandboxChanges{Changed: []*sandboxv1.Sandbox{sandboxOf(sandboxID("red", 1))}, Complete: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// The last characters of the ids of the teams' sandboxes.
var teamOf = map[string]string{"a": "red", "b": "blue"}

func sandboxID(team string, n int) string {
	for mark, name := range teamOf {
		if name == team {
			return fmt.Sprintf("01hzzzzzzzzzzzzzzzzzzzz%02d%s-east", n, mark)
		}
	}
	return ""
}

func sandboxOf(id string) *sandboxv1.Sandbox {
	name := strings.TrimSuffix(id, "-east")
	return &sandboxv1.Sandbox{Id: id, Namespace: "default", Env: "demo", Team: teamOf[name[len(name)-1:]], Phase: sandboxv1.Phase_RUNNING}
}

// I14: a team that opens all conversations it can, with several sandboxes and keys, leaves room for another team's exec.
func TestI14OneTeamLeavesTunnelsForOthers(t *testing.T) {
	o := testOptions(t)
	o.apiKeysFile = filepath.Join(t.TempDir(), "keys.yaml")
	o.shares = reach.Shares{All: 12, Account: 12, Sandbox: 4}
	tokens := teamKeys(t, o.apiKeysFile, "red", "blue")
	h := start(t, o)
	authority, err := pki.New(filepath.Dir(o.tls.CA))
	must.Succeed(t, err)
	files, err := authority.Cluster("east")
	must.Succeed(t, err)
	worker := attachEast(t, h.link, authority)
	worker.serveReach(files, h.link)

	exec := func(team string, n int) (code int, body string) {
		dialer := websocket.Dialer{Subprotocols: []string{reach.ExecProtocol}, HandshakeTimeout: 20 * time.Second}
		url := fmt.Sprintf("ws://%s/v1/sandboxes/%s/exec?command=sh", h.api, sandboxID(team, n))
		conn, resp, err := dialer.DialContext(t.Context(), url, http.Header{"Authorization": {"Bearer " + tokens[team]}})
		if resp == nil {
			t.Fatalf("exec of %s: %v", team, err)
		}
		defer resp.Body.Close()
		if err != nil {
			text := make([]byte, 4096)
			n, _ := resp.Body.Read(text)
			return resp.StatusCode, string(text[:n])
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, message, err := conn.ReadMessage()
		if err != nil || len(message) == 0 {
			t.Fatalf("exec of %s: %q, %v", team, message, err)
		}
		return resp.StatusCode, string(message[1:])
	}
	wait.For(t, 20*time.Second, "the worker to attach", func(context.Context) error {
		code, body := exec("red", 0)
		return wait.If(code == http.StatusSwitchingProtocols, fmt.Sprint(code, " ", body))
	})
	held, refusals := 1, map[string]int{}
	for n := range 5 { // sandboxes
		for range 5 {
			switch code, body := exec("red", n); code {
			case http.StatusSwitchingProtocols:
				held++
			case http.StatusTooManyRequests:
				for _, share := range []string{"sandbox " + sandboxID("red", n) + " has 4 conversations already, want at most 4",
					`team \"red\" has 6 of this cluster's 12`} {
					if strings.Contains(body, share) {
						refusals[share]++
					}
				}
			default:
				t.Fatalf("exec of red: %d %s", code, body)
			}
		}
	}
	if held != 6 || len(refusals) < 2 {
		t.Errorf("red has %d of 12 conversations, want 6; refused for %v", held, refusals)
	}
	for n := range 3 {
		if code, body := exec("blue", n); code != http.StatusSwitchingProtocols || body != "hello" {
			t.Errorf("exec of blue: %d %s", code, body)
		}
	}
}
