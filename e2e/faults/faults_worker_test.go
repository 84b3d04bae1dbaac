// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/faults/apiproxy"
	"navix.sh/atoll/e2e/faults/proxy"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/link/linkfaults"
)

// podWith waits for the Pod with a key.
func (s *scenario) podWith(ctx context.Context, cluster, key string) (pod *corev1.Pod, err error) {
	err = wait.Until(ctx, 20*time.Second, "a Pod with key "+key, func(ctx context.Context) error {
		pods, err := s.podsWith(ctx, cluster, key)
		if len(pods) == 1 {
			pod = &pods[0]
		}
		return errors.Join(err, wait.If(len(pods) == 1, fmt.Sprintf("%d in %s", len(pods), cluster)))
	})
	return pod, err
}

func (s *scenario) podsWith(ctx context.Context, cluster, key string) ([]corev1.Pod, error) {
	pods, err := s.pods(ctx, cluster)
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.Annotations[v1alpha1.ClaimKeyAnnotationKey] != key || pod.DeletionTimestamp != nil
	}), err
}

// wantAnswered waits until a key returns the Pod that has it already.
func (s *scenario) wantAnswered(ctx context.Context, key string, pod *corev1.Pod) error {
	sandbox, err := s.claimKept(ctx, key, s.victim)
	if err != nil {
		return err
	}
	if sandbox.GetPodUid() != string(pod.UID) {
		return fmt.Errorf("I2: key %s was written on pod %s and answered on %s", key, pod.UID, sandbox.GetPodUid())
	}
	return nil
}

// workerKilledAfterWrite kills a worker between the write of a Pod and the response.
func workerKilledAfterWrite(ctx context.Context, s *scenario) error {
	key := s.load.name + "-unanswered"
	// The responses leave an hour later, if the worker lives that long.
	if err := s.spoil(s.victim, s.seed, linkfaults.Rule{Kinds: []string{"answer"}, DelayMillis: time.Hour.Milliseconds()}); err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { _, _ = s.load.create(ctx, request(key, s.victim)) })
	written, err := s.podWith(ctx, s.victim, key)
	if err != nil {
		return err
	}
	if err := s.programs[s.victim].kill(); err != nil {
		return err
	}
	s.between(ctx, 0, 3*time.Second)
	if err := s.heal(); err != nil {
		return err
	}
	if err := s.programs[s.victim].start(ctx); err != nil {
		return err
	}
	return s.wantAnswered(ctx, key, written)
}

// second runs another worker of the victim's cluster, like a second replica, until the returned function is called.
func (s *scenario) second(ctx context.Context) (second *program, name string, end func() error, err error) {
	p, err := s.WorkerAs(s.victim, s.victim, s.victim)
	if err != nil {
		return nil, "", nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, "", nil, err
	}
	second = &program{program: p}
	s.further = append(s.further, second)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { second.care(ctx) })
	return second, p.String(), func() error {
		cancel()
		running.Wait()
		if p.Ended() {
			return nil
		}
		return errors.Join(p.Resume(), second.stop())
	}, nil
}

// lateWriteOfOldLeader freezes a leader whose write to the API server arrives after another leader has responded.
func lateWriteOfOldLeader(ctx context.Context, s *scenario) (err error) {
	_, second, end, err := s.second(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	key := s.load.name + "-late"
	late := time.Duration(22+s.random.IntN(8)) * time.Second
	s.details = fmt.Sprintf(" by %s", late)
	var once sync.Once
	hit := make(chan struct{})
	s.servers[s.victim].Set(apiproxy.Rule{
		Methods: []string{http.MethodPatch}, Path: "/pods/", Delay: late, Late: true,
		OnHit: func(*http.Request) { once.Do(func() { close(hit) }) },
	})
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { _, _ = s.load.create(ctx, request(key, s.victim)) })
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-hit:
	}
	linger(ctx, 500*time.Millisecond) // for the writes of other claims
	held := time.Now()
	if err := s.programs[s.victim].pause(); err != nil {
		return err
	}
	answered, err := s.claimKept(ctx, key, s.victim)
	if err != nil {
		return errors.Join(err, s.programs[s.victim].resume())
	}
	linger(ctx, time.Until(held.Add(late+time.Second)))
	if err := errors.Join(s.programs[s.victim].resume(), s.heal()); err != nil {
		return err
	}
	err = wait.Until(ctx, patience, "the late Pod to be given up", func(ctx context.Context) error {
		pods, err := s.podsWith(ctx, s.victim, key)
		return errors.Join(err, wait.If(len(pods) == 1 && string(pods[0].UID) == answered.GetPodUid(),
			fmt.Sprintf("I2: key %s was answered on pod %s, and is on %v", key, answered.GetPodUid(), describe(pods))))
	})
	if err != nil {
		return err
	}
	// Only the second worker has the latest records, and it is about to end permanently.
	return wait.Until(ctx, patience, "the first worker to have the second one's records", func(ctx context.Context) error {
		text, err := s.Metrics(ctx, second)
		return errors.Join(err, wait.If(strings.Contains(text, "\natoll_worker_history_followers 1\n"), "it does not follow"))
	})
}

// leaderChanges takes the lease from one worker after another, in every way.
func leaderChanges(ctx context.Context, s *scenario) (err error) {
	second, _, end, err := s.second(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for i := range 4 {
		p := []*program{s.programs[s.victim], second}[i%2]
		switch s.random.IntN(3) {
		case 0:
			err = p.crash(ctx)
		case 1:
			err = errors.Join(p.stop(), p.start(ctx))
		default:
			err = p.pause()
			s.between(ctx, 16*time.Second, 20*time.Second)
			err = errors.Join(err, p.resume())
		}
		if err != nil {
			return err
		}
		s.between(ctx, 0, 3*time.Second)
	}
	return s.heal()
}

// apiServerInTrouble makes one cluster's API server slow, refuse, or lose responses, and crash at the end.
func apiServerInTrouble(ctx context.Context, s *scenario) error {
	troubles := []struct {
		name string
		rule apiproxy.Rule
	}{
		{"slow", apiproxy.Rule{Delay: 5 * time.Second}},
		{"429", apiproxy.Rule{Refuse: true, Chance: 0.7}},
		{"answers lost", apiproxy.Rule{LoseAnswer: true, Chance: 0.5, Methods: []string{http.MethodPatch, http.MethodPost, http.MethodPut,
			http.MethodDelete}}},
	}
	trouble := troubles[s.seed%uint64(len(troubles))]
	s.details = " " + trouble.name
	s.servers[s.victim].Set(trouble.rule)
	if s.random.IntN(2) == 0 {
		s.details += " and late"
		s.ways[s.victim].Set(proxy.Both(proxy.Way{Delay: 200 * time.Millisecond}))
	}
	for range 3 {
		s.between(ctx, 2*time.Second, 4*time.Second)
		if err := s.wantServed(ctx, s.other, "the API server of "+s.victim+" is in trouble"); err != nil {
			return err
		}
	}
	victim := s.set.Plane(s.victim)
	victim.StopAPIServer()
	s.between(ctx, 0, 5*time.Second)
	served := s.wantServed(ctx, s.other, "the API server of "+s.victim+" is down")
	return errors.Join(served, victim.StartAPIServer(ctx), s.heal())
}

// clocksStepped steps the clocks of all programs back and forth. No program's health may change because of it (I11).
func clocksStepped(ctx context.Context, s *scenario) error {
	for range 6 {
		for _, name := range names() {
			if err := s.setClock(name, time.Duration(s.random.IntN(1201)-600)*time.Second); err != nil {
				return err
			}
		}
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); linger(ctx, 100*time.Millisecond) {
			for _, cluster := range clusters {
				if err := s.wantState(ctx, cluster, sandboxv1.ClusterState_FRESH); err != nil {
					return fmt.Errorf("I11: after a step of the clocks: %w", err)
				}
			}
		}
	}
	return s.heal()
}
