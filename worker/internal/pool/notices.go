// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/worker/internal/pool/status"
)

// These limit a pool's Events of one reason: noticeBurst at once, then one per noticeEvery. The next Event counts the suppressed ones. A
// node that takes a hundred sandboxes down needs one action.
const (
	noticeBurst = 5
	noticeEvery = 30 * time.Second
	// longestNote is below the limit of an Event's note, to leave room for the number of suppressed Events.
	longestNote = 900
)

// notices are Kubernetes Events that a user may have to act on.
type notices struct {
	recorder events.EventRecorder
	*perPool[*noticed]
}

// noticed is the record of Events about a pool.
type noticed struct {
	limits map[reason]*limit
	causes map[string]bool // why idle Pods were stuck in the last reconcile
}

type limit struct {
	*rate.Limiter
	left int // suppressed since the last Event
}

func newNotices(recorder events.EventRecorder, clk clock.PassiveClock) *notices {
	return &notices{recorder, newPerPool[*noticed](clk)}
}

// warn creates a warning Event.
func (n *notices) warn(pool *v1alpha1.SandboxPool, pod *corev1.Pod, reason reason, action, format string, args ...any) {
	n.record(pool, pod, corev1.EventTypeWarning, reason, action, format, args...)
}

// record creates an Event unless its reason has reached its limit.
func (n *notices) record(pool *v1alpha1.SandboxPool, pod *corev1.Pod, eventType string, reason reason, action, format string, args ...any) {
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
	note := clip.Text(fmt.Sprintf(format, args...), longestNote)
	if left > 0 {
		note += fmt.Sprintf(" (and %d more of this kind before)", left)
	}
	if pod == nil {
		n.recorder.Eventf(pool, nil, eventType, string(reason), action, "%s", note)
		return
	}
	n.recorder.Eventf(pool, pod, eventType, string(reason), action, "%s", note)
}

// stuck reports idle Pods that do not become ready. It reports each cause when it first appears, and again after it had gone.
func (n *notices) stuck(pool *v1alpha1.SandboxPool, causes status.Causes) {
	n.mu.Lock()
	before := n.at(client.ObjectKeyFromObject(pool))
	known := before.causes
	before.causes = map[string]bool{}
	for _, c := range causes {
		before.causes[c.Reason] = true
	}
	n.mu.Unlock()
	for _, c := range causes {
		if !known[c.Reason] {
			n.warn(pool, c.Pod, reasonPodsNotReady, "Fill", "idle pods that do not become ready: %d: %s: %s", c.Pods, c.Reason, c.Message)
		}
	}
}

// at returns the entry of a pool. The caller holds the lock.
func (n *notices) at(key types.NamespacedName) *noticed {
	if n.pools[key] == nil {
		n.pools[key] = &noticed{limits: map[reason]*limit{}}
	}
	return n.pools[key]
}
