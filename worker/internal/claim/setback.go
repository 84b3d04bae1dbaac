// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"navix.sh/atoll/pkg/wallclock"
)

// ErrSetBack is an etcd that was restored from a backup under a running worker. What this process knows of its cluster is
// of another time: a Pod that looks idle may have been handed out in the time that was lost (I1).
var ErrSetBack = errors.New("etcd is older than what this worker has seen: it was restored from a backup")

const (
	// lookEvery is how often Pods are compared with what is known of them, lookHurry the same while the API server does not
	// answer: one that comes up may have another etcd behind it.
	lookEvery = time.Second
	lookHurry = 100 * time.Millisecond
	// lagPatience is how far events may lag behind without being looked into: much longer than watches usually take, much
	// less than lagLimit.
	lagPatience = 2 * time.Second
	// lagReads bounds the live reads of one look. After a restore the first of them tells.
	lagReads = 10
)

// SetBack is closed once etcd is known to have been set back. From then on nothing is served.
//
// A cluster's revision alone does not tell for long: whoever writes brings it past where it was. Nor do informers: once it is
// past, their watches go on as if nothing had happened. Therefore single Pods are looked at, which stay as they were before
// until somebody writes to them: above all the one that has changed last, since whatever is lost, that is. The versions that
// this worker's own writes get are compared as well, and NewestSeen is a floor for what others read of etcd.
func (s *Service) SetBack() <-chan struct{} { return s.setBack }

// NewestSeen is the highest resourceVersion that this process has seen on a Pod: what is read live later is not below it.
func (s *Service) NewestSeen() uint64 {
	s.mu.Lock()
	defer s.unlock()
	return s.newest
}

func (s *Service) wasSetBack() bool {
	select {
	case <-s.setBack:
		return true
	default:
		return false
	}
}

// foundSetBack ends serving. The lock is held.
func (s *Service) foundSetBack() {
	if !s.wasSetBack() {
		close(s.setBack)
	}
	s.leading = nil
}

// isSetBack reports whether a write got a version that had been passed before it was sent. If so, serving ends, and so does
// the sandbox: its Pod may be somebody's from the time that etcd has lost.
func (s *Service) isSetBack(before uint64, id string, answer *corev1.Pod) bool {
	if answer == nil || versionOf(answer) == 0 || versionOf(answer) > before {
		return false
	}
	s.mu.Lock()
	defer s.unlock()
	s.foundSetBack()
	s.strays.put(s.opts.Clock.Now(), id, struct{}{})
	s.see(answer, true) // which ends it
	return true
}

// changedNothing reports whether a write that got no new version has found everything as it wants it: the same timeout given
// twice, activity twice within a second, a repetition of what went through unheard. Its version is then the Pod's own, which
// is not below what was seen of that Pod; and the Pod that has changed last is as it was.
func (s *Service) changedNothing(ctx context.Context, answer *corev1.Pod) (bool, error) {
	seen, fresh := s.lastChanged(answer)
	if !fresh {
		return false, nil
	}
	live, err := s.opts.Pods.read(ctx, seen.pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	if err != nil {
		live = nil
	}
	s.lookedAt(seen, live)
	return !s.wasSetBack(), nil
}

// lastChanged answers the Pod that has changed last; fresh unless more was seen of the Pod that a write has answered.
func (s *Service) lastChanged(answer *corev1.Pod) (last sight, fresh bool) {
	s.mu.Lock()
	defer s.unlock()
	if e := s.pods[answer.UID]; e != nil && versionOf(answer) < e.top {
		return sight{}, false
	}
	if e := s.latestPod(); e != nil {
		return sight{e.pod, e.top}, true
	}
	return sight{answer, versionOf(answer)}, true
}

// compare notes whether a view of a Pod lags behind what was seen of it before. The lock is held.
func (s *Service) compare(e *entry, pod *corev1.Pod, now time.Time) {
	version := versionOf(pod)
	_, known := s.lagging[pod.UID]
	switch {
	case version >= e.top:
		e.top, e.missing = version, false
		delete(s.lagging, pod.UID)
		if s.latest == nil || version > s.latest.top {
			s.latest = e
		}
	case !known:
		s.lagging[pod.UID] = now
	}
}

// watchPods compares what is known of Pods with what they are, until ctx ends or etcd was set back.
func (s *Service) watchPods(ctx context.Context) {
	pause := lookEvery
	for wallclock.Sleep(ctx, s.opts.Clock, pause) == nil && !s.wasSetBack() {
		pause = lookEvery
		for _, seen := range s.toLookAt() {
			live, err := s.opts.Pods.read(ctx, seen.pod)
			switch {
			case err == nil:
				s.lookedAt(seen, live)
			case apierrors.IsNotFound(err):
				s.lookedAt(seen, nil)
			default:
				pause = lookHurry
			}
		}
	}
}

// sight is a Pod with the highest version seen of it so far.
type sight struct {
	pod *corev1.Pod
	top uint64
}

// toLookAt are the Pod that has changed last, and those whose events stay behind. What a live read finds is compared with what
// was seen before it was sent: meanwhile the Pod may change.
func (s *Service) toLookAt() []sight {
	s.mu.Lock()
	defer s.unlock()
	now := s.opts.Clock.Now()
	var out []sight
	if e := s.latestPod(); e != nil {
		out = append(out, sight{e.pod, e.top})
	}
	for uid, since := range s.lagging {
		if e := s.pods[uid]; now.Sub(since) >= lagPatience && len(out) < lagReads {
			out = append(out, sight{e.pod, e.top})
		}
	}
	return out
}

// latestPod is the Pod that has changed last of those that are there. The lock is held.
func (s *Service) latestPod() *entry {
	if e := s.latest; e != nil && !e.missing && s.pods[e.pod.UID] == e {
		return e
	}
	s.latest = nil
	for _, e := range s.pods {
		if !e.missing && (s.latest == nil || e.top > s.latest.top) {
			s.latest = e
		}
	}
	return s.latest
}

// lookedAt takes in what a Pod is, nil when it is gone. A live read that is older than what was seen is of an etcd that was
// set back. Of a Pod that is gone the last event may be on its way.
func (s *Service) lookedAt(seen sight, live *corev1.Pod) {
	s.mu.Lock()
	defer s.unlock()
	delete(s.lagging, seen.pod.UID)
	e := s.pods[seen.pod.UID]
	if e == nil {
		return
	}
	if live == nil || live.UID != seen.pod.UID {
		e.missing = true
		return
	}
	version := versionOf(live)
	if version < seen.top {
		s.opts.Log.Error(ErrSetBack, "Serving nothing any more", "pod", live.Name, "version", version, "before", seen.top)
		s.foundSetBack()
		return
	}
	if version > e.version {
		s.see(live, true)
	}
}
