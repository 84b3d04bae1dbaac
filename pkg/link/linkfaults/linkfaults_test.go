// SPDX-License-Identifier: Apache-2.0

package linkfaults

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	federationv1 "navix.sh/atoll/api/federation/v1"
	"navix.sh/atoll/e2e/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is a stream that notes what is sent.
type wire struct {
	grpc.ServerStream
	ctx  context.Context
	sent []string
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) SendMsg(m any) error {
	frame := m.(*federationv1.HubFrame)
	number := frame.GetHeartbeatAck().GetNumber() + frame.GetDispatch().GetId()
	w.sent = append(w.sent, fmt.Sprint(kindOf(m), number))
	return nil
}

func ack(n uint64) any {
	return &federationv1.HubFrame{Body: &federationv1.HubFrame_HeartbeatAck{HeartbeatAck: &federationv1.HeartbeatAck{Number: n}}}
}

func dispatch(n uint64) any {
	return &federationv1.HubFrame{Body: &federationv1.HubFrame_Dispatch{Dispatch: &federationv1.Dispatch{Id: n}}}
}

// pace has no common multiple with swapPatience that a test reaches: what is due at the same instant comes in any order.
const pace = 1100 * time.Millisecond

// send sends frames through the server's interceptor under the rules, one after the other, and returns what came out a minute
// later.
func send(t *testing.T, rules Rules, frames ...any) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "faults")
	must.Succeed(t, rules.Write(file))
	source, err := New("@" + file)
	must.Succeed(t, err)
	var sent []string
	synctest.Test(t, func(t *testing.T) {
		w := &wire{ctx: t.Context()}
		err := source.Server()(nil, w, nil, func(_ any, stream grpc.ServerStream) error {
			for _, f := range frames {
				if err := stream.SendMsg(f); err != nil {
					return err
				}
				time.Sleep(pace)
			}
			time.Sleep(time.Minute)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		sent = w.sent
	})
	return strings.Join(sent, " ")
}

func TestFates(t *testing.T) {
	frames := []any{ack(1), dispatch(2), ack(3), ack(4)}
	for name, tc := range map[string]struct {
		rules []Rule
		want  string
	}{
		"none":    {nil, "heartbeat_ack1 dispatch2 heartbeat_ack3 heartbeat_ack4"},
		"dropped": {[]Rule{{Kinds: []string{"dispatch"}, Drop: 1}}, "heartbeat_ack1 heartbeat_ack3 heartbeat_ack4"},
		"twice": {[]Rule{{Kinds: []string{"dispatch"}, Duplicate: 1}},
			"heartbeat_ack1 dispatch2 dispatch2 heartbeat_ack3 heartbeat_ack4"},
		"swapped":              {[]Rule{{Kinds: []string{"dispatch"}, Swap: 1}}, "heartbeat_ack1 heartbeat_ack3 dispatch2 heartbeat_ack4"},
		"swapped with nothing": {[]Rule{{Kinds: []string{"heartbeat_ack"}, Drop: 1}, {Swap: 1}}, "dispatch2"},
		"late": {[]Rule{{Kinds: []string{"dispatch"}, DelayMillis: 2500}},
			"heartbeat_ack1 heartbeat_ack3 heartbeat_ack4 dispatch2"},
		"the first that fits": {[]Rule{{Kinds: []string{"heartbeat_ack"}}, {Drop: 1}}, "heartbeat_ack1 heartbeat_ack3 heartbeat_ack4"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := send(t, Rules{Rules: tc.rules}, frames...); got != tc.want {
				t.Errorf("sent %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestASeedIsReproducible(t *testing.T) {
	var frames []any
	for n := range uint64(40) {
		frames = append(frames, ack(n))
	}
	some := func(seed uint64) Rules {
		return Rules{Seed: seed, Rules: []Rule{{Drop: 0.2, Duplicate: 0.2, Swap: 0.2}}}
	}
	first, again, other := send(t, some(1), frames...), send(t, some(1), frames...), send(t, some(2), frames...)
	if first != again {
		t.Errorf("the same seed sent\n%s\n%s", first, again)
	}
	if first == other {
		t.Error("another seed sent the same")
	}
}

func TestAHandlersReturnEndsWhatIsHeldBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "faults")
	must.Succeed(t, (Rules{Rules: []Rule{{DelayMillis: 3_600_000}}}).Write(file))
	source, err := New("@" + file)
	must.Succeed(t, err)
	w := &wire{ctx: t.Context()}
	must.Succeed(t, source.Server()(nil, w, nil, func(_ any, stream grpc.ServerStream) error { return stream.SendMsg(ack(1)) }))
	if len(w.sent) > 0 {
		t.Errorf("sent %v", w.sent)
	}
}

func TestSettings(t *testing.T) {
	if _, err := New("0.5"); err == nil {
		t.Error("a setting that is no file is taken")
	}
}
