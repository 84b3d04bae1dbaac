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

// ErrSetBack is an etcd that was restored from a backup under a running worker. What this process knows of its cluster is of
// another time: a Pod that looks idle may have been handed out in the time that was lost (I1).
var ErrSetBack = errors.New("etcd is older than what this worker has seen: it was restored from a backup")

const (
	// lookEvery is how often Pods are compared with what is known of them, lookHurry the same while the API server does not
	// respond: one that comes up may have another etcd behind it.
	lookEvery = time.Second
	lookHurry = 100 * time.Millisecond
	// lagPatience is how far events may lag behind without being looked into: much longer than watches usually take, much less
	// than lagLimit.
	lagPatience = 2 * time.Second
	// lagReads bounds the live reads of one look. After a restore the first of them tells.
	lagReads = 10
)

// trail is what tells that etcd was set back.
type trail struct {
	newest  uint64                  // the highest resourceVersion seen
	latest  *Pod                    // the Pod that has changed last, unless it is gone
	lagging map[types.UID]time.Time // since when a view of these Pods is older than another; each is in pods
}

// sight is a Pod with the highest version seen of it so far.
type sight struct {
	pod *corev1.Pod
	top uint64
}

// SetBack is closed once etcd is known to have been set back. From then on nothing is served.
//
// A cluster's revision alone does not tell for long: others' writes bring it past where it was. Nor do informers: once it is past,
// their watches go on as if nothing had happened. Therefore single Pods are looked at, which stay as they were before until they
// are written to: above all the one that has changed last, since whatever is lost, that is. The versions that this worker's own
// writes get are compared as well, and NewestSeen is a floor for what others read of etcd.
func (i *Inventory) SetBack() <-chan struct{} { return i.setBack }

// NewestSeen is the highest resourceVersion that this process has seen on a Pod: what is read live later is not below it.
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

// FoundSetBack ends serving.
func (s *State) FoundSetBack() {
	if !s.inventory.wasSetBack() {
		close(s.inventory.setBack)
	}
	s.leading = nil
}

// IsSetBack reports whether a write got a version that had been passed before it was sent. If so, serving ends, and the sandbox is
// disowned: its Pod may be another tenant's from the time that etcd has lost.
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

// lastChanged is the Pod that has changed last; fresh unless more was seen of the Pod that was written.
func (v *View) lastChanged(written *corev1.Pod) (last sight, fresh bool) {
	if p := v.pods[written.UID]; p != nil && versionOf(written) < p.top {
		return sight{}, false
	}
	if p := v.latestPod(); p != nil {
		return sight{p.object, p.top}, true
	}
	return sight{written, versionOf(written)}, true
}

// watchPods compares what is known of Pods with what they are, until ctx ends or etcd was set back.
func (i *Inventory) watchPods(ctx context.Context) {
	pause := lookEvery
	for wallclock.Sleep(ctx, i.opts.Clock, pause) == nil && !i.wasSetBack() {
		pause = lookEvery
		var sights []sight
		i.View(func(v *View) { sights = v.toLookAt() })
		for _, seen := range sights {
			live, err := i.opts.Client.Read(ctx, seen.pod)
			switch {
			case err == nil:
				i.lookedAt(seen, live)
			case apierrors.IsNotFound(err):
				i.lookedAt(seen, nil)
			default:
				pause = lookHurry
			}
		}
	}
}

// toLookAt are the Pod that has changed last, and those whose events stay behind. What a live read finds is compared with what was
// seen before it was sent: meanwhile the Pod may change.
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

// latestPod is the Pod that has changed last of those that are there.
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

// lookedAt takes in what a Pod is, nil when it is gone. A live read that is older than what was seen is of an etcd that was set
// back. Of a Pod that is gone the last event may be on its way.
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
