// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/pkg/problem"
)

// arm is one way to get a sandbox.
type arm struct {
	name  string
	do    operation
	reset func(ctx context.Context) error
}

// rawArm patches Pods directly, with tests and content like a claim's. Untracked, it ends their managed fields as a claim
// does, for good.
func (s *stock) rawArm(untracked bool) arm {
	bodies := make([][]byte, len(s.raw))
	for i, pod := range s.raw {
		bodies[i] = rawPatch(pod, i, untracked)
	}
	name := "raw"
	if untracked {
		name = "raw, untracked"
	}
	return arm{
		name: name,
		do: func(ctx context.Context, i int) error {
			_, err := s.kube.CoreV1().Pods(rawNamespace).Patch(ctx, s.raw[i].Name, types.JSONPatchType, bodies[i], asWorker())
			return err
		},
		reset: func(ctx context.Context) error { return s.reset(ctx, s.raw) },
	}
}

func rawPatch(pod corev1.Pod, i int, untracked bool) []byte {
	const labels, annotations = "/metadata/labels/", "/metadata/annotations/"
	op := func(verb, path string, value any) map[string]any {
		return map[string]any{"op": verb, "path": path, "value": value}
	}
	label := func(key, value string) map[string]any { return op("add", labels+escape(key), value) }
	annotation := func(key, value string) map[string]any { return op("add", annotations+escape(key), value) }
	id := fmt.Sprintf("01j9zq3p3k5m8x7c2v4b6n%04d-bench", i)
	ops := []map[string]any{
		op("test", "/metadata/uid", pod.UID),
		op("test", labels+escape(v1alpha1.SandboxPhaseLabelKey), v1alpha1.SandboxPhaseIdle),
		op("test", "/metadata/deletionTimestamp", nil),
		label(v1alpha1.SandboxPhaseLabelKey, v1alpha1.SandboxPhaseRunning),
		label(v1alpha1.SandboxIDLabelKey, id),
		annotation(v1alpha1.SandboxIDAnnotationKey, id),
		annotation(v1alpha1.SandboxClaimedAtAnnotationKey, "2026-01-01T00:00:00Z"),
		annotation(v1alpha1.SandboxStartedAtAnnotationKey, "2026-01-01T00:00:00Z"),
		annotation(v1alpha1.SandboxFirstActivityTimeoutAnnotationKey, "300"),
		annotation(v1alpha1.SandboxStartupTimeoutAnnotationKey, "120"),
		annotation(v1alpha1.SandboxContainerIDAnnotationKey, pod.Status.ContainerStatuses[0].ContainerID),
		annotation(v1alpha1.SandboxManagedLabelKeysAnnotationKey, ""),
		annotation(v1alpha1.SandboxManagedAnnotationKeysAnnotationKey, ""),
	}
	if untracked {
		ops = append(ops, op("add", "/metadata/managedFields", []map[string]any{{}}))
	}
	body, err := json.Marshal(ops)
	if err != nil {
		panic(err) // strings and maps always encode
	}
	return body
}

func escape(key string) string {
	out := make([]byte, 0, len(key)+2)
	for _, c := range []byte(key) {
		switch c {
		case '~':
			out = append(out, "~0"...)
		case '/':
			out = append(out, "~1"...)
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

// holdings remembers which Pod was answered to whom, to find one that was answered twice.
type holdings struct {
	mu      sync.Mutex
	holder  map[string]string // pod uid → sandbox id, this leg
	doubled int
	refused map[string]int // errors by reason, all legs
}

// fail counts an error by its reason and hands it on.
func (b *holdings) fail(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused[string(problem.FromError(err).Reason)]++
	return err
}

func (b *holdings) enter(sandbox *sandboxv1.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other, taken := b.holder[sandbox.GetPodUid()]; taken && other != sandbox.GetId() {
		b.doubled++
	}
	b.holder[sandbox.GetPodUid()] = sandbox.GetId()
}

// hubArm claims through the hub. With keys every claim has a new one.
func (s *stock) hubArm(b *holdings, keyed bool) arm {
	var mu sync.Mutex
	leg := 0
	name := "hub"
	if keyed {
		name = "hub, keyed"
	}
	return arm{
		name: name,
		do: func(ctx context.Context, i int) error {
			request := &sandboxv1.CreateSandboxRequest{Namespace: namespace, Env: envName}
			if keyed {
				mu.Lock()
				request.ClaimKey = fmt.Sprintf("bench-%d-%d", leg, i)
				mu.Unlock()
			}
			sandbox, err := s.hub.CreateSandbox(ctx, request)
			if err != nil {
				return b.fail(err)
			}
			if sandbox.GetPhase() != sandboxv1.Phase_RUNNING {
				return b.fail(errors.New("answered before it ran"))
			}
			b.enter(sandbox)
			return nil
		},
		reset: func(ctx context.Context) error {
			mu.Lock()
			leg++
			mu.Unlock()
			b.mu.Lock()
			b.holder = map[string]string{}
			b.mu.Unlock()
			if err := s.reset(ctx, s.pool); err != nil {
				return err
			}
			return s.waitReady(ctx)
		},
	}
}
