// SPDX-License-Identifier: Apache-2.0

package workertest

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/worker/internal/sandbox"
)

// Sandbox is the true history of a sandbox.
type Sandbox struct {
	ID      string
	KeyHash string
	Attempt int32
	Pod     types.UID
	// Container is the first container that ran for it.
	Container string
	Claimed   time.Time
	Ended     time.Time // zero while it lives
	Reason    string    // why it ended
	// Forgotten means that it was claimed after the backup from which etcd was restored.
	Forgotten bool
}

// journal records the lives of sandboxes, from etcd's changes alone.
type journal struct {
	mu   sync.Mutex
	byID map[string]*Sandbox
	ids  []string
}

func newJournal() *journal { return &journal{byID: map[string]*Sandbox{}} }

func (j *journal) saw(before, after *corev1.Pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if before != nil {
		if s := sandbox.Read(before); s.ID != "" && (after == nil || sandbox.Read(after).ID != s.ID) {
			j.end(s.ID, "PodGone")
		}
	}
	if after == nil {
		return
	}
	s := sandbox.Read(after)
	if s.ID == "" {
		return
	}
	if j.byID[s.ID] == nil {
		j.byID[s.ID] = &Sandbox{ID: s.ID, KeyHash: s.KeyHash, Attempt: s.Attempt, Pod: after.UID, Claimed: time.Now()}
		j.ids = append(j.ids, s.ID)
	}
	if one := j.byID[s.ID]; one.Container == "" && s.Phase == sandbox.Running {
		one.Container = s.ContainerID
	}
	switch {
	case s.Phase.Live() && after.DeletionTimestamp != nil:
		j.end(s.ID, "PodDeleted")
	case !s.Phase.Live():
		j.end(s.ID, strings.TrimSpace(string(s.End.StopReason)+" "+s.End.Reason))
	}
}

func (j *journal) end(id, reason string) {
	if s := j.byID[id]; s != nil && s.Ended.IsZero() {
		s.Ended, s.Reason = time.Now(), reason
	}
}

// restore marks the sandboxes that the restored etcd lacks: those that were on a Pod until now, either live or ended without a record yet.
func (j *journal) restore(from, to image) {
	j.mu.Lock()
	defer j.mu.Unlock()
	had, has := from.sandboxes(), to.sandboxes()
	for id, one := range j.byID {
		switch {
		case has[id]:
		case one.Ended.IsZero():
			one.Ended, one.Reason, one.Forgotten = time.Now(), "EtcdRestored", true
		case had[id]:
			one.Forgotten = true
		}
	}
}

// sandboxes returns the ids on Pods.
func (i image) sandboxes() map[string]bool {
	ids := map[string]bool{}
	for _, object := range i.objects {
		if pod, ok := object.(*corev1.Pod); ok {
			ids[sandbox.Read(pod).ID] = true
		}
	}
	return ids
}

// Sandboxes lists all sandboxes that were ever on a Pod, in the order of their claims.
func (c *Cluster) Sandboxes() []Sandbox {
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	out := make([]Sandbox, 0, len(c.journal.ids))
	for _, id := range c.journal.ids {
		out = append(out, *c.journal.byID[id])
	}
	return slices.Clip(out)
}

// ReadyIdle counts the Pods of an Env that can be claimed.
func (c *Cluster) ReadyIdle(env string) int32 {
	var n int32
	objects, _ := c.server.list(podKind)
	node, _ := c.server.get(name{nodeKind, types.NamespacedName{Name: nodeName}}).(*corev1.Node)
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok && sandbox.PoolOf(pod).Name == PoolOf(env) && sandbox.Claimable(pod, node).OK() {
			n++
		}
	}
	return n
}

var podKind, nodeKind = kindOf(&corev1.Pod{}), kindOf(&corev1.Node{})

// KeyHash returns the label value of a claim key on a Pod.
func KeyHash(team, namespace, key string) string { return sandbox.KeyHash(team, namespace, key) }
