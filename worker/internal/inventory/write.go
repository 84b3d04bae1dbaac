// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"navix.sh/atoll/pkg/telemetry"
	"navix.sh/atoll/worker/internal/sandbox"
)

// Write sends a patch of a sandbox's Pod once, and updates the index with the result.
func (i *Inventory) Write(ctx context.Context, id string, pod *corev1.Pod, patch []byte, subresource ...string) (Result, error) {
	return i.write(ctx, id, pod, func(ctx context.Context) (*corev1.Pod, error) {
		return i.opts.Client.Patch(ctx, pod, patch, subresource...)
	})
}

// Delete deletes a sandbox's Pod once, if it has not changed since it was read, and updates the index with the result. The Pod does not
// show end, the reason. The index therefore remembers it until the Pod is gone, or until it has changed so that the deletion cannot take
// effect.
func (i *Inventory) Delete(ctx context.Context, id string, pod *corev1.Pod, end sandbox.Termination) (Result, error) {
	i.Update(func(s *State) {
		p := s.pods[pod.UID]
		if version := versionOf(pod); p != nil && (p.released == nil || p.releasedAt < version) {
			p.released, p.releasedAt = &end, version
		}
	})
	return i.write(ctx, id, pod, func(ctx context.Context) (*corev1.Pod, error) { return i.opts.Client.Delete(ctx, pod) })
}

func (i *Inventory) write(
	ctx context.Context, id string, pod *corev1.Pod, send func(context.Context) (*corev1.Pod, error),
) (Result, error) {
	before := i.NewestSeen()
	writing, end := StartWrite(ctx, pod, id)
	now, err := send(writing)
	got := ResultOf(err)
	end(got)
	switch got {
	case Written:
		if versionOf(now) <= before {
			same, err := i.changedNothing(ctx, now)
			switch {
			case err != nil:
				return Unclear, err
			case same:
				i.Update(func(s *State) { s.SeeLive(now) })
				return got, nil
			}
		}
		if i.IsSetBack(before, id, now) {
			return got, ErrSetBack
		}
		i.Update(func(s *State) {
			if now.DeletionTimestamp == nil || s.pods[now.UID] != nil { // else its end was seen before this response
				s.SeeLive(now)
			}
		})
	case Lost, NoPod:
		if err := i.Reread(ctx, pod); err != nil {
			return got, err
		}
	}
	return got, err
}

// Reread updates the index with a live read of a Pod.
func (i *Inventory) Reread(ctx context.Context, pod *corev1.Pod) error {
	live, err := i.opts.Client.Read(ctx, pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	i.Update(func(s *State) {
		if err != nil || live.UID != pod.UID {
			s.Forget(pod)
			return
		}
		s.SeeLive(live)
	})
	return nil
}

// StartWrite begins the span of a write that claims a Pod or ends a sandbox, including its retries.
func StartWrite(ctx context.Context, pod *corev1.Pod, id string) (writing context.Context, end func(Result)) {
	writing, span := telemetry.Start(ctx, "pod write")
	return writing, func(got Result) { endWrite(span, pod, id, got) }
}

func endWrite(span trace.Span, pod *corev1.Pod, id string, got Result) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Pod.String(pod.Namespace+"/"+pod.Name), telemetry.Sandbox.String(id), telemetry.Outcome.String(string(got)))
	if got != Written {
		span.SetStatus(codes.Error, string(got))
	}
	span.End()
}

// changedNothing reports whether a write got no new version because it changed nothing: the same timeout set twice, activity twice within a
// second, or a retry of a write whose response was lost. Then its version is the Pod's own, which is not below the highest one seen of that
// Pod, and the Pod that changed last is unchanged.
func (i *Inventory) changedNothing(ctx context.Context, written *corev1.Pod) (bool, error) {
	var last sight
	var fresh bool
	i.View(func(v *View) { last, fresh = v.lastChanged(written) })
	if !fresh {
		return false, nil
	}
	if err := i.look(ctx, last); err != nil {
		return false, err
	}
	return !i.wasSetBack(), nil
}
