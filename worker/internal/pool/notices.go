// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// A pool's Events of one reason: this many at once, then one in so long. What is
// left out is counted in the next one: a node that takes a hundred sandboxes along
// is one thing to act on.
const (
	noticeBurst = 5
	noticeEvery = 30 * time.Second
)

// notices are Kubernetes Events about what somebody might have to do something
// about.
type notices struct {
	recorder events.EventRecorder
	clock    clock.PassiveClock

	mu    sync.Mutex
	pools map[types.NamespacedName]*noticed
}

// noticed is what a pool was told of.
type noticed struct {
	limits map[Reason]*limit
	causes map[string]bool // why idle Pods were stuck at the last look
}

type limit struct {
	*rate.Limiter
	left int // out since the last one
}

func newNotices(recorder events.EventRecorder, clk clock.PassiveClock) *notices {
	return &notices{recorder: recorder, clock: clk, pools: map[types.NamespacedName]*noticed{}}
}

// warn makes an Event of something that somebody may have to act on.
func (n *notices) warn(pool *v1alpha1.SandboxPool, pod *corev1.Pod, reason Reason, action, format string, args ...any) {
	n.tell(pool, pod, corev1.EventTypeWarning, reason, action, format, args...)
}

// tell makes an Event, unless there were many of its reason.
func (n *notices) tell(pool *v1alpha1.SandboxPool, pod *corev1.Pod, eventType string, reason Reason, action, format string, args ...any) {
	n.mu.Lock()
	l := n.at(client.ObjectKeyFromObject(pool)).limits[reason]
	if l == nil {
		l = &limit{Limiter: rate.NewLimiter(rate.Every(noticeEvery), noticeBurst)}
		n.pools[client.ObjectKeyFromObject(pool)].limits[reason] = l
	}
	if !l.AllowN(n.clock.Now(), 1) {
		l.left++
		n.mu.Unlock()
		return
	}
	left := l.left
	l.left = 0
	n.mu.Unlock()
	note := clipNote(fmt.Sprintf(format, args...))
	if left > 0 {
		note += fmt.Sprintf(" (and %d more of this kind before)", left)
	}
	if pod == nil {
		n.recorder.Eventf(pool, nil, eventType, string(reason), action, "%s", note)
		return
	}
	n.recorder.Eventf(pool, pod, eventType, string(reason), action, "%s", note)
}

// stuck tells of idle Pods that do not become ready: each cause when it comes up,
// and again only after it was gone.
func (n *notices) stuck(pool *v1alpha1.SandboxPool, causes []cause) {
	n.mu.Lock()
	before := n.at(client.ObjectKeyFromObject(pool))
	known := before.causes
	before.causes = map[string]bool{}
	for _, c := range causes {
		before.causes[c.reason] = true
	}
	n.mu.Unlock()
	for _, c := range causes {
		if !known[c.reason] {
			n.warn(pool, c.pod, ReasonPodsNotReady, "Fill", "idle pods that do not become ready: %d: %s: %s", c.pods, c.reason, c.message)
		}
	}
}

// at is called with the lock held.
func (n *notices) at(key types.NamespacedName) *noticed {
	if n.pools[key] == nil {
		n.pools[key] = &noticed{limits: map[Reason]*limit{}}
	}
	return n.pools[key]
}

func (n *notices) forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pools, key)
}

// clipNote keeps within what an Event may say.
func clipNote(s string) string {
	const most = 900
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
