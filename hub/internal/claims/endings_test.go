// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/problem"
)

// A durable end is sent again to a cluster that was in trouble, whether or not its caller retries.
func TestAnEndThatIsNotConfirmedIsToldAgain(t *testing.T) {
	for name, end := range map[string]func(f *federation, id string) error{
		"release": func(f *federation, id string) error {
			_, err := f.hub.End(f.t.Context(), "east", id)
			return err
		},
		"cancel": func(f *federation, _ string) error {
			_, err := f.hub.CancelClaim(f.t.Context(), cancelOf("k"))
			return err
		},
	} {
		bubble(t, name, func(t *testing.T) {
			f := newFederation(t, map[string]int32{"east": 3})
			defer runHub(t, f.hub)()
			id, east := f.create(workertest.Request("k")).GetId(), f.Workers["east"]
			troubles := 3
			east.OnCall = func(context.Context, *federationv1.Dispatch) (*federationv1.Answer, error) {
				if troubles--; troubles < 0 {
					return nil, nil
				}
				return workertest.Failure(federationv1.Disposition_UNCLEAR, problem.Internal), nil
			}
			_ = end(f, id)
			synctest.Wait()
			if east.Count() != 1 || f.hub.endings.len() != 1 {
				t.Fatalf("%d sandboxes run and %d ends wait", east.Count(), f.hub.endings.len())
			}
			time.Sleep(4 * endingEvery)
			synctest.Wait()
			if east.Count() != 0 || f.hub.endings.len() != 0 {
				t.Errorf("%d sandboxes run on, %d ends wait", east.Count(), f.hub.endings.len())
			}
		})
	}
}

// TestAnEndIsToldAgainWhileKeysAreMissing: the caller got the acknowledgement of the cancel, however long the recovery lasts.
func TestAnEndIsToldAgainWhileKeysAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, map[string]int32{"east": 3, "west": 3})
		f.create(workertest.Request("k", workertest.Prefer("east")))
		f.loseLedger()
		defer runHub(t, f.hub)()
		f.tell("east")
		east := f.Workers["east"]
		east.SetConnected(false)
		_, err := f.hub.CancelClaim(t.Context(), cancelOf("k"))
		must.Succeed(t, err)
		east.SetConnected(true)
		time.Sleep(2 * endingEvery)
		synctest.Wait()
		if east.Count() != 0 {
			t.Error("the sandbox of a cancelled claim runs on")
		}
		f.wantRecovering("other")
	})
}

// I10: what is remembered is bounded, and is retried although there is no room for more.
func TestEndingsAreBounded(t *testing.T) {
	e := &endings{waiting: map[ending]bool{}}
	for n := range int32(maxEndings + 1) {
		e.add(ending{cluster: "east", attempt: n})
	}
	if e.len() != maxEndings {
		t.Errorf("%d are remembered, want %d", e.len(), maxEndings)
	}
	for _, what := range e.take(maxEndings) {
		e.settle(what, problem.New(problem.Unavailable, "not yet"))
	}
	if again := len(e.take(maxEndings)); again != maxEndings {
		t.Errorf("%d are asked for again, want %d", again, maxEndings)
	}
}
