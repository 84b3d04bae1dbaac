// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"k8s.io/utils/clock"

	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/worker/internal/rooms"
)

// I9: what the hub's Welcome says of allotments holds for the next leader too, while the hub is away. A hub that says nothing of them
// ends it, and a worker without a hub is limited by nothing.
func TestI9TheHubsWordOnAllotmentsIsKept(t *testing.T) {
	w := newWorld(t)
	limited := func(what string, want bool, with func(*Options)) {
		t.Helper()
		kept := rooms.New(w.Live, clock.RealClock{})
		leader := w.leadWith(clusterID, func(o *Options) {
			o.Rooms = kept
			with(o)
		})
		<-leader.agent.ready
		w.Eventually(what, func() error { return wait.If(kept.On() == want, kept.On()) })
		w.Must(leader.stop())
	}
	away := func(o *Options) { o.Hub.Target = "127.0.0.1:1" }
	says := func(divides bool) func(*Options) {
		return func(*Options) { w.hub.set(func() { w.hub.welcome.Allotments = divides }) }
	}
	limited("no limit before a hub has said so", false, away)
	limited("the hub's word", true, says(true))
	limited("its word while it is away", true, away)
	limited("no limit without a hub", false, func(o *Options) { o.Hub.Target = "" })
	limited("a hub that divides nothing", false, says(false))
	limited("its word while it is away, again", false, away)
}
