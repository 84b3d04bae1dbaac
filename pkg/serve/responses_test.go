// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/testserver"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// long responds to a claim with a MiB.
type long struct{ echo }

func (long) CreateSandbox(context.Context, *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return &sandboxv1.Sandbox{Image: strings.Repeat("x", 1<<20)}, nil
}

// counted fails while any response is counted.
func (r *responses) counted() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.callers) > 0 {
		return fmt.Errorf("I10: counted are %v, want nothing", r.callers)
	}
	return nil
}

// I14: callers share what there is in total; a caller without unsent responses has room for one, however many callers there are.
func TestI14CallersShareTheBudgetOfResponses(t *testing.T) {
	const size = 2 * smallResponse
	r := &responses{each: 4 * size, inAll: 6 * size, callers: map[string]int{}}
	var sent []func()
	for i, want := range []int{4, 3, 2, 1, 1} { // of one caller beside so many others
		got := 0
		for ; ; got++ {
			taken, err := r.take(fmt.Sprint("caller ", i), size)
			if err != nil {
				break
			}
			sent = append(sent, taken)
		}
		if got != want {
			t.Errorf("caller %d has room for %d responses, want %d", i, got, want)
		}
	}
	for _, taken := range sent {
		taken()
	}
	must.Succeed(t, r.counted())
}

// I14: a caller that does not take its responses makes the server hold its share of bytes, and costs others none of theirs. Nothing is
// counted of responses that were taken, were given up, or whose connection has closed.
func TestI14UntakenResponsesHaveABudget(t *testing.T) {
	opts := Options{Services: Public(long{}, echo{}, echo{}, echo{}, echo{}), OpenAPI: sandboxv1.OpenAPI}
	secured(&opts)
	server, err := New(opts)
	must.Succeed(t, err)
	server.guard.responses = &responses{each: 4 << 20, inAll: 6 << 20, callers: map[string]int{}}
	address := testserver.Serve(t, server.Serve)
	as := func(caller string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", caller)
	}
	honest := sandboxv1.NewSandboxesClient(dial(t, address, insecure.NewCredentials()))
	create := func(caller string) error {
		_, err := honest.CreateSandbox(as(caller), &sandboxv1.CreateSandboxRequest{})
		return err
	}
	for name, end := range map[string]func(conn *grpc.ClientConn, left func()){
		"left":   func(_ *grpc.ClientConn, left func()) { left() },
		"closed": func(conn *grpc.ClientConn, _ func()) { _ = conn.Close() },
	} {
		deaf, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(1<<20)) // they would grow
		must.Succeed(t, err)
		t.Cleanup(func() { _ = deaf.Close() })
		ctx, left := context.WithCancel(as("deaf"))
		defer left()
		must.Succeed(t, wait.Until(t.Context(), patience, "the budget to be used up", func(context.Context) error {
			for range 5 { // again each time: those that meet the check's own response are refused
				stream, err := deaf.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, createMethod)
				must.Succeed(t, err)
				must.Succeed(t, stream.SendMsg(&sandboxv1.CreateSandboxRequest{}))
				must.Succeed(t, stream.CloseSend())
			}
			if err := create("deaf"); err == nil || problem.FromError(err).Reason != problem.RateLimited {
				return fmt.Errorf("%s: a caller with 4 MiB that it has not taken is told %w", name, err)
			}
			return nil
		}))
		for range 20 { // one after the other, each within what there is
			must.Succeed(t, create("other"))
		}
		code, text, _ := rest(t, http.DefaultClient, http.MethodPost, "http://"+address+"/v1/sandboxes", "{}", "Authorization", "deaf")
		if code != http.StatusTooManyRequests {
			t.Errorf("over REST the same caller gets %d: %.200s", code, text)
		}
		code, text, _ = rest(t, http.DefaultClient, http.MethodPost, "http://"+address+"/v1/sandboxes", "{}", "Authorization", "other")
		if code != http.StatusOK {
			t.Errorf("over REST another caller gets %d: %.200s", code, text)
		}
		end(deaf, left)
		must.Succeed(t, wait.Until(t.Context(), patience, "responses not to be counted any more", func(context.Context) error {
			return server.guard.responses.counted()
		}))
	}
}
