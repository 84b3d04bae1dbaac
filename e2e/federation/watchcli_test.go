// SPDX-License-Identifier: Apache-2.0

//go:build !kind

package federation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// atollctl prints what changes as the stream tells it, whichever way it is asked, and ends when it is interrupted.
func TestTheCLIWatchesOverTheStream(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "watch-cli", equally(1)...)
	for _, command := range [][]string{
		{"sandboxes", "-w", "--env", "default/" + e.Name, "-o", "json"},
		{"get", "sandboxes", "-w", "-l", "watched=yes", "-n", "default", "--env", e.Name, "-o", "json"},
	} {
		t.Run(command[0], func(t *testing.T) {
			const watches = "atoll_hub_watches "
			before, err := atoll.SumMetrics(ctx, stack.Hub, watches)
			must.Succeed(t, err)
			watching := ctlFor(ctx, atoll.HubEndpoint(), command[0], command[1:]...)
			watching.Stdout = nil
			out, err := watching.StdoutPipe()
			must.Succeed(t, err)
			must.Succeed(t, watching.Start())
			wait.For(t, patience, "the watch to be open", func(ctx context.Context) error {
				now, err := atoll.SumMetrics(ctx, stack.Hub, watches)
				return wait.If(err == nil && now == before+1, fmt.Sprintf("the hub has %g watches, had %g: %v", now, before, err))
			})
			s := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{
				Clusters: []string{"west"}, RequireClusters: true, Labels: map[string]string{"watched": "yes"},
			})
			printed := json.NewDecoder(io.LimitReader(out, 16<<20))
			find := func(what string, is func(*sandboxv1.Sandbox) bool) {
				for {
					var one json.RawMessage
					if err := printed.Decode(&one); err != nil {
						t.Fatalf("%s was not printed: %v; %s", what, err, &watching.stderr)
					}
					got := &sandboxv1.Sandbox{}
					_ = (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(one, got) // the first is the list
					if got.GetId() == s.GetId() && is(got) {
						return
					}
				}
			}
			find("the claim", func(s *sandboxv1.Sandbox) bool { return s.GetPhase() == sandboxv1.Phase_RUNNING })
			e.mustRelease(ctx, t, hub, s)
			find("the end", func(s *sandboxv1.Sandbox) bool { return s.GetStopReason() == "Released" })
			must.Succeed(t, watching.Process.Signal(os.Interrupt))
			if code := watching.end(t); code != 0 {
				t.Errorf("interrupted, it exits with %d: %s", code, &watching.stderr)
			}
		})
	}
}
