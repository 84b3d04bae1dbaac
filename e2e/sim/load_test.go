// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/hub/hubtest"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/worker/workertest"
)

const (
	clients = 3
	// think bounds a client's pause between two calls.
	think = 3 * time.Second
	// roomy is the number of sandboxes above which most calls end one.
	roomy = 6
)

// recordLost is the reason of an end that the sandbox's cluster has no record of.
const recordLost = "RecordLost"

var errDown = errors.New("no hub answers")

// load is the clients' continuous load.
type load struct {
	world *world
	stop  chan struct{}
	all   sync.WaitGroup

	mu   sync.Mutex
	keys []string
}

func (w *world) startLoad() *load {
	l := &load{world: w, stop: make(chan struct{})}
	for i := range clients {
		l.all.Go(func() { l.client(i+1, w.dice(fmt.Sprint("client", i))) })
	}
	l.all.Go(func() { l.use(w.dice("user")) })
	return l
}

func (l *load) end() {
	close(l.stop)
	l.all.Wait()
}

func (l *load) client(number int, draw *rand.Rand) {
	for l.pause(time.Duration(draw.Int64N(int64(think)))) {
		l.once(number, draw)
	}
}

// once makes one call.
func (l *load) once(number int, draw *rand.Rand) {
	w := l.world
	if w.history.alive() >= roomy && draw.IntN(2) == 0 {
		if g, ok := w.history.anyGiven(draw.IntN); ok {
			w.release(number, g)
			return
		}
	}
	switch p := draw.IntN(100); {
	case p < 45:
		key := l.newKey(number, draw)
		if len(w.replicas) > 0 && draw.IntN(2) == 0 {
			l.twice(number, key)
		}
		w.claim(number, draw, key, 1)
	case p < 55:
		w.claim(number, draw, l.oldKey(draw), 1)
	case p < 58:
		w.claim(number, draw, l.oldKey(draw), 2)
	case p < 70:
		w.claim(number, draw, "", 1)
	case p < 95:
		if g, ok := w.history.anyGiven(draw.IntN); ok {
			w.release(number, g)
		}
	default:
		if key := l.oldKey(draw); key != "" {
			w.cancel(number, key)
		}
	}
}

// twice claims with a key a second time, so that two replicas have it at once; and sometimes cancels it meanwhile.
func (l *load) twice(number int, key string) {
	draw := l.world.dice("twice" + key)
	claimAfter, cancelAfter := time.Duration(draw.Int64N(int64(20*time.Millisecond))), time.Duration(draw.Int64N(int64(50*time.Millisecond)))
	if draw.IntN(4) == 0 {
		l.all.Go(func() {
			time.Sleep(cancelAfter)
			l.world.cancel(number+2*clients, key)
		})
	}
	l.all.Go(func() {
		time.Sleep(claimAfter)
		l.world.claim(number+clients, draw, key, 1) // draws from here on
	})
}

func (l *load) newKey(number int, draw *rand.Rand) string {
	key := fmt.Sprintf("k%d-%d", number, draw.IntN(1e9))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = append(l.keys, key)
	return key
}

// oldKey returns a recent key, so that calls about one key meet; "" if there is none.
func (l *load) oldKey(draw *rand.Rand) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) == 0 {
		return ""
	}
	return l.keys[max(0, len(l.keys)-1-draw.IntN(8))]
}

// ask calls the current hub. A response of a hub that was killed meanwhile is not heard.
func (w *world) ask(do func(h *hubtest.Hub) error) (err error, heard bool) {
	if len(w.replicas) > 0 {
		return w.anyReplica().ask(do)
	}
	w.mu.Lock()
	hub, epoch, deaf := w.hub, w.epoch, w.deaf
	w.mu.Unlock()
	if hub == nil {
		return errDown, true
	}
	err = do(hub)
	w.mu.Lock()
	defer w.mu.Unlock()
	return err, w.epoch == epoch && !deaf()
}

// request is a claim; the same key and variant give the same claim.
func request(key string, variant int, draw *rand.Rand) *sandboxv1.CreateSandboxRequest {
	r := &sandboxv1.CreateSandboxRequest{
		Env: env, ClaimKey: key, StartupTimeout: durationpb.New(20 * time.Second), Metadata: map[string]string{"variant": fmt.Sprint(variant)},
	}
	if key == "" {
		r.FirstActivityTimeout = durationpb.New(0) // kept sandboxes are not used
	}
	swap := draw.IntN(2) == 0
	if key != "" {
		swap = key[len(key)-1]%2 == 0
	}
	if swap {
		r.Image = workertest.TenantImage
	}
	return r
}

// claim asks for a sandbox, sometimes with a short timeout.
func (w *world) claim(client int, draw *rand.Rand, key string, variant int) answer {
	patience := 40 * time.Second
	if draw.IntN(5) == 0 {
		patience = time.Duration(1+draw.IntN(2000)) * time.Millisecond
	}
	o := w.history.begin(client, question{verb: create, key: key, variant: variant})
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	var got *sandboxv1.Sandbox
	err, heard := w.ask(func(h *hubtest.Hub) (err error) {
		got, err = h.Create(ctx, request(key, variant, draw))
		return err
	})
	a := answerOf(got, err, heard)
	if got.GetFailureReason() == recordLost && w.allowed.losses {
		a.said = unheard
	}
	if a.said == live {
		w.history.give(key, got)
	}
	w.history.finish(o, a)
	return a
}

func answerOf(got *sandboxv1.Sandbox, err error, heard bool) answer {
	switch {
	case !heard:
		return answer{said: unheard, why: "the answer was lost"}
	case err != nil && problem.FromError(err).Reason == problem.ClaimKeyConflict:
		return answer{said: conflicted}
	case err != nil:
		return answer{said: unheard, why: err.Error()}
	case got.GetPhase() == sandboxv1.Phase_RUNNING:
		return answer{said: live, id: got.GetId()}
	default:
		return answer{said: over, id: got.GetId(), why: got.GetPhase().String() + " " + got.GetStopReason() + " " + got.GetFailureReason()}
	}
}

func (w *world) release(client int, g held) operation {
	o := w.history.begin(client, question{verb: release, key: g.key, id: g.id})
	err, heard := w.ask(func(h *hubtest.Hub) error {
		_, err := h.Sandboxes.Release(context.Background(), g.id)
		return err
	})
	a := answer{said: done, id: g.id}
	if err != nil || !heard {
		a = answer{said: unheard, why: fmt.Sprint(err)}
	}
	return w.history.finish(o, a)
}

func (w *world) cancel(client int, key string) operation {
	o := w.history.begin(client, question{verb: cancel, key: key})
	err, heard := w.ask(func(h *hubtest.Hub) error {
		_, err := h.CancelClaim(context.Background(), &sandboxv1.CancelClaimRequest{ClaimKey: key})
		return err
	})
	a := answer{said: unheard, why: fmt.Sprint(err)}
	switch {
	case err == nil && heard:
		a = answer{said: done}
	case heard && !errors.Is(err, errDown) && problem.FromError(err).Reason == problem.NotFound:
		a = answer{said: missing}
	}
	return w.history.finish(o, a)
}

// settle asks for every key until its outcome is known: after that no call is in flight. There is room for all.
func (w *world) settle() {
	keys, open := map[string]struct{}{}, map[string]struct{}{}
	for _, o := range w.history.all() {
		if o.key != "" && o.verb == create {
			keys[o.key], open[o.key] = struct{}{}, struct{}{}
		}
	}
	for _, o := range w.history.all() {
		if o.said != unheard {
			delete(open, o.key)
		}
	}
	taken := map[string]int{}
	for id, s := range w.truth() {
		if s.Ended.IsZero() {
			taken[id[strings.LastIndexByte(id, '-')+1:]]++
		}
	}
	for _, s := range w.members() {
		if err := s.Scale(env, int32(taken[s.ID]+len(open)+roomy)); err != nil {
			w.problem("making room in %s: %v", s.ID, err)
		}
	}
	var all sync.WaitGroup
	for key := range keys {
		all.Go(func() {
			draw := w.dice("settle" + key)
			w.eventually("an answer for key "+key, 5*time.Minute, func() error {
				a := w.claim(0, draw, key, 1)
				if a.said == conflicted {
					a = w.claim(0, draw, key, 2)
				}
				return wait.If(a.said != unheard || strings.Contains(a.why, recordLost), a.why)
			})
		})
	}
	all.Wait()
}
