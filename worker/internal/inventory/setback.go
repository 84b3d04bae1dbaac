// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/pkg/wallclock"
)

// ErrSetBack means that etcd was restored from a backup under a running worker. The index of this process describes another state: a Pod
// that looks idle may have been claimed in the time that was lost (I1).
var ErrSetBack = errors.New("etcd is older than what this worker has seen: it was restored from a backup")

const (
	// lookEvery is the interval at which Pods are compared with the index. lookHurry is the interval while the API server does not respond: it
	// may come back with another etcd.
	lookEvery = time.Second
	lookHurry = 100 * time.Millisecond
	// lagPatience is how long events may lag before they are checked: much longer than watches usually take, much less than lagLimit.
	lagPatience = 2 * time.Second
	// lagReads bounds the live reads of one comparison. After a restore, the first of them shows it.
	lagReads = 10
)

// trail is the state that shows whether etcd was restored from a backup.
type trail struct {
	newest  uint64                  // the highest resourceVersion seen
	latest  *Pod                    // the Pod that changed last, unless it is gone
	lagging map[types.UID]time.Time // when a view of these Pods was first older than another; each is in pods
}

// sight is a Pod with the highest version seen of it so far.
type sight struct {
	pod *corev1.Pod
	top uint64
}

// SetBack returns a channel that is closed when it is known that etcd was restored from a backup. From then on nothing is served.
//
// A cluster's revision shows a restore only for a short time, because other writers raise it past the old one. Informers do not show it
// either: when the revision is past the old one, their watches continue as if nothing had happened. Therefore single Pods are read, which
// stay as they were before until they are written. The most important one is the Pod that changed last, because a restore always loses that
// change. The versions of this worker's own writes are compared as well, and NewestSeen is a floor for other reads of etcd.
func (i *Inventory) SetBack() <-chan struct{} { return i.setBack }

// NewestSeen returns the highest resourceVersion that this process has seen on a Pod. No later live read is below it.
func (i *Inventory) NewestSeen() (newest uint64) {
	i.View(func(v *View) { newest = v.newest })
	return newest
}

func (i *Inventory) wasSetBack() bool {
	select {
	case <-i.setBack:
		return true
	default:
		return false
	}
}

// FoundSetBack stops serving.
func (s *State) FoundSetBack() {
	if !s.inventory.wasSetBack() {
		close(s.inventory.setBack)
	}
	s.leading = nil
}

// IsSetBack reports whether a write got a version that was exceeded before it was sent. If so, it stops serving and disowns the sandbox,
// whose Pod may belong to another tenant from the time that etcd has lost.
func (i *Inventory) IsSetBack(before uint64, id string, written *corev1.Pod) bool {
	if written == nil || versionOf(written) == 0 || versionOf(written) > before {
		return false
	}
	i.Update(func(s *State) {
		s.FoundSetBack()
		s.Disown(id)
		s.SeeLive(written)
	})
	return true
}

// lastChanged returns the Pod that changed last. fresh is false if a newer version of the written Pod was seen.
func (v *View) lastChanged(written *corev1.Pod) (last sight, fresh bool) {
	if p := v.pods[written.UID]; p != nil && versionOf(written) < p.top {
		return sight{}, false
	}
	if p := v.latestPod(); p != nil {
		return sight{p.object, p.top}, true
	}
	return sight{written, versionOf(written)}, true
}

// watchPods compares the index with live Pods, until ctx ends or a restore is found.
func (i *Inventory) watchPods(ctx context.Context) {
	pause := lookEvery
	for wallclock.Sleep(ctx, i.opts.Clock, pause) == nil && !i.wasSetBack() {
		pause = lookEvery
		var sights []sight
		i.View(func(v *View) { sights = v.toLookAt() })
		for _, seen := range sights {
			if i.look(ctx, seen) != nil {
				pause = lookHurry
			}
		}
	}
}

// look compares a Pod with a live read of it.
func (i *Inventory) look(ctx context.Context, seen sight) error {
	live, err := i.opts.Client.Read(ctx, seen.pod)
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return err
	}
	i.lookedAt(seen, live)
	return nil
}

// toLookAt returns the Pod that changed last, and those whose events lag. The live reads are compared with the versions seen before,
// because the Pods may change meanwhile.
func (v *View) toLookAt() []sight {
	now := v.clock.Now()
	var out []sight
	if p := v.latestPod(); p != nil {
		out = append(out, sight{p.object, p.top})
	}
	for uid, since := range v.lagging {
		if p := v.pods[uid]; now.Sub(since) >= lagPatience && len(out) < lagReads {
			out = append(out, sight{p.object, p.top})
		}
	}
	return out
}

// latestPod returns the existing Pod that changed last.
func (v *View) latestPod() *Pod {
	if p := v.latest; p != nil && !p.missing && v.pods[p.object.UID] == p {
		return p
	}
	v.latest = nil
	for _, p := range v.pods {
		if !p.missing && (v.latest == nil || p.top > v.latest.top) {
			v.latest = p
		}
	}
	return v.latest
}

// lookedAt handles the live state of a Pod, which is nil if the Pod is gone. A live read that is older than the highest version seen before
// comes from a restored etcd. The last event of a Pod that is gone may still arrive.
func (i *Inventory) lookedAt(seen sight, live *corev1.Pod) {
	i.Update(func(s *State) {
		delete(s.lagging, seen.pod.UID)
		p := s.pods[seen.pod.UID]
		if p == nil {
			return
		}
		if live == nil || live.UID != seen.pod.UID {
			p.missing = true
			return
		}
		version := versionOf(live)
		if version < seen.top {
			i.opts.Log.Error(ErrSetBack, "Serving nothing any more", "pod", live.Name, "version", version, "before", seen.top)
			s.FoundSetBack()
			return
		}
		if version > p.version {
			s.SeeLive(live)
		}
	})
}
