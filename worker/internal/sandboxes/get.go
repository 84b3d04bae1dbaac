// SPDX-License-Identifier: Apache-2.0

package sandboxes

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/worker/internal/disposition"
	"navix.sh/atoll/worker/internal/inventory"
	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// eventsTimeout bounds the time that a Get waits for events. No API server caches them, so a read can be slow.
	eventsTimeout = time.Second
	// maxEventReads bounds the concurrent reads of events. A Get beyond it returns no events.
	maxEventReads = 4
	// maxEvents is the maximum number of events that a Get returns.
	maxEvents       = 10
	maxEventMessage = 512
)

// Get returns the current state of a sandbox, or the record of one that has ended. For a sandbox that does not run yet, or has failed, it
// adds the Warning events of its Pod, if it can read them in time.
func (s *Service) Get(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	record, pod, err := s.find(ctx, id)
	if err != nil || record.GetStatusDetail() == nil || pod == nil {
		return record, err
	}
	select {
	case s.eventReads <- struct{}{}:
		defer func() { <-s.eventReads }()
	default:
		return record, nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	events, err := s.inventory.Client().Warnings(ctx, pod)
	if err != nil {
		s.opts.Log.V(1).Info("Could not read events", "pod", pod.Name, "error", err.Error())
		return record, nil
	}
	record.StatusDetail.Events = newestEvents(events, record.GetClaimedAt().AsTime())
	return record, nil
}

// Find is Get without events.
func (s *Service) Find(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	record, _, err := s.find(ctx, id)
	return record, err
}

// find returns a sandbox, and its Pod if it has one.
func (s *Service) find(ctx context.Context, id string) (record *sandboxv1.Sandbox, pod *corev1.Pod, err error) {
	s.inventory.View(func(v *inventory.View) {
		if !v.Complete() {
			err = disposition.NotServing()
		} else if p := v.Sandbox(id); p != nil {
			record, pod = s.Show(p), p.Object()
		}
	})
	if err == nil && record == nil {
		record, err = s.findEnded(ctx, id)
	}
	return record, pod, err
}

// live returns the Pod of a live sandbox, or the record of one that has ended or is stopping.
func (s *Service) live(ctx context.Context, id string) (pod *corev1.Pod, record *sandboxv1.Sandbox, err error) {
	s.inventory.View(func(v *inventory.View) {
		p := v.Sandbox(id)
		switch {
		case !v.Serving():
			err = disposition.NotServing()
		case p == nil:
		case p.Live():
			pod = p.Object()
		default:
			record = s.Show(p)
		}
	})
	if pod == nil && record == nil && err == nil {
		record, err = s.findEnded(ctx, id)
	}
	return pod, record, err
}

// findEnded returns the record of a sandbox that is on no Pod.
func (s *Service) findEnded(ctx context.Context, id string) (*sandboxv1.Sandbox, error) {
	record, err := s.Recorded(ctx, id)
	if err == nil && record == nil {
		err = s.noSandbox(id)
	}
	return record, err
}

func (s *Service) noSandbox(id string) error {
	if !strings.HasSuffix(id, "-"+s.clusterID) {
		return disposition.NotFound("sandbox %q is not of cluster %s", id, s.clusterID)
	}
	return disposition.NotFound("there is no sandbox %q, and no record of one", id)
}

// Show returns the sandbox on a Pod.
func (s *Service) Show(p *inventory.Pod) *sandboxv1.Sandbox {
	record := sandbox.Record(p.Object(), p.Pool().Runtimes(), s.clusterID)
	if t := p.Released(); t != nil && record != nil && !p.Live() {
		t.ShowIn(record)
	}
	return record
}

// newestEvents returns the events of a Pod that a caller may see, the latest first. It leaves out events that were first created before the
// claim of the sandbox, because they may concern another tenant (I13); this includes old events that occur again. Both times are the API
// server's.
func newestEvents(events []corev1.Event, claimed time.Time) []*sandboxv1.PodEvent {
	events = slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool {
		return e.Type != corev1.EventTypeWarning || e.CreationTimestamp.Time.Before(claimed)
	})
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return lastTime(&b).Compare(lastTime(&a)) })
	shown := make([]*sandboxv1.PodEvent, 0, min(len(events), maxEvents))
	for i := range events[:min(len(events), maxEvents)] {
		e := &events[i]
		count := max(e.Count, 1)
		if e.Series != nil {
			count = max(count, e.Series.Count)
		}
		message := e.Message
		if len(message) > maxEventMessage {
			message = message[:maxEventMessage] + "…"
		}
		shown = append(shown, &sandboxv1.PodEvent{
			Reason: e.Reason, Message: strings.ToValidUTF8(message, string(utf8.RuneError)),
			LastTime: timestamppb.New(lastTime(e)), Count: count,
		})
	}
	return shown
}

// lastTime returns when an event last happened, as far as its fields show it.
func lastTime(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
