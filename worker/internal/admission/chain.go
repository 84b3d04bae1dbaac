// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// deadline bounds one question to one plugin.
	deadline = 5 * time.Second
	// maxAsked bounds the open questions to one plugin, including abandoned ones. A plugin that never returns therefore holds that many
	// goroutines and no more.
	maxAsked = 32
)

// question is a question to a plugin, as named in metrics and messages.
type question string

const (
	preCreatePool question = "PreCreatePool"
	preUpdatePool question = "PreUpdatePool"
	preDeletePool question = "PreDeletePool"
	preCreatePod  question = "PreCreatePod"
)

// Chain asks its plugins in order. A nil Chain admits everything.
type Chain struct {
	plugins []*asked
	metrics *metrics
	clock   clock.PassiveClock
}

// asked is a plugin with its open questions.
type asked struct {
	Plugin
	slots chan struct{}
}

// New creates a Chain. Put plugins without reservations before those with reservations.
func New(clk clock.PassiveClock, plugins ...Plugin) *Chain {
	c := &Chain{metrics: newMetrics(), clock: clk}
	for _, p := range plugins {
		c.plugins = append(c.plugins, &asked{Plugin: p, slots: make(chan struct{}, maxAsked)})
	}
	return c
}

// Register adds the chain's metrics.
func (c *Chain) Register(registerer prometheus.Registerer) error {
	return c.metrics.register(registerer)
}

// PreCreatePool returns how many replicas a pool may be created with. change.Pool then has the plugins' edits, unless there is an
// error.
func (c *Chain) PreCreatePool(ctx context.Context, change *Change) (Verdict, error) {
	return c.grow(ctx, preCreatePool, change, func(p Plugin) poolQuestion {
		if p, ok := p.(PreCreatePool); ok {
			return p.PreCreatePool
		}
		return nil
	})
}

// PreUpdatePool returns up to how many replicas a pool may grow. No plugin is asked about a pool that does not grow.
func (c *Chain) PreUpdatePool(ctx context.Context, change *Change) (Verdict, error) {
	if change.To <= change.From {
		return Admit(change.To), nil
	}
	return c.grow(ctx, preUpdatePool, change, func(p Plugin) poolQuestion {
		if p, ok := p.(PreUpdatePool); ok {
			return p.PreUpdatePool
		}
		return nil
	})
}

// PreDeletePool returns whether a pool may be deleted, with Replicas 0 if so. The first refusal counts.
func (c *Chain) PreDeletePool(ctx context.Context, change *Change) (Verdict, error) {
	if c == nil {
		return Admit(0), nil
	}
	for _, p := range c.plugins {
		ask, ok := p.Plugin.(PreDeletePool)
		if !ok {
			continue
		}
		seen := *change
		seen.Pool = change.Pool.DeepCopy()
		v, err := c.ask(ctx, preDeletePool, p, 0, func(ctx context.Context) (Verdict, error) { return ask.PreDeletePool(ctx, &seen) })
		if err != nil {
			return Verdict{}, err
		}
		if !v.Whole(0) {
			v.Replicas = change.From
			return v, nil
		}
	}
	return Admit(0), nil
}

// PreCreatePod returns whether a Pod may be created, with Replicas 1 if so; request.Pod then has the plugins' edits. The first
// refusal counts.
func (c *Chain) PreCreatePod(ctx context.Context, request *PodRequest) (Verdict, error) {
	if c == nil {
		return Admit(1), nil
	}
	for _, p := range c.plugins {
		ask, ok := p.Plugin.(PreCreatePod)
		if !ok {
			continue
		}
		seen := PodRequest{Pool: request.Pool, Pod: request.Pod.DeepCopy()}
		v, err := c.ask(ctx, preCreatePod, p, 1, func(ctx context.Context) (Verdict, error) { return ask.PreCreatePod(ctx, &seen) })
		if err != nil {
			return Verdict{}, err
		}
		if !v.Whole(1) {
			v.Replicas = 0
			return v, nil
		}
		if !sameIdentity(request.Pod, seen.Pod) {
			return Verdict{}, fmt.Errorf("admission plugin %s changed the Pod's name, owner, finalizers or a reserved key, which are the pool's",
				p.Name())
		}
		request.Pod = seen.Pod
	}
	return Admit(1), nil
}

type poolQuestion func(ctx context.Context, change *Change) (Verdict, error)

// grow asks each plugin about the number that the earlier plugins admit. Whenever a later one admits less, it starts again with the first,
// because an earlier one has then reserved too much. It ends with the first round in which no plugin admits less.
func (c *Chain) grow(ctx context.Context, q question, change *Change, of func(Plugin) poolQuestion) (Verdict, error) {
	if c == nil {
		return Admit(change.To), nil
	}
	seen := *change
	least := Admit(change.To)
	for range len(c.plugins) + 1 {
		seen.Pool = change.Pool.DeepCopy() // otherwise a plugin that appends would append once per round
		others, again := 0, false
		for _, p := range c.plugins {
			ask := of(p.Plugin)
			if ask == nil {
				continue
			}
			v, err := c.askAbout(ctx, q, p, &seen, ask)
			if err != nil {
				return Verdict{}, err
			}
			if !v.Whole(seen.To) && (v.Replicas < seen.To || least.Reason == "") {
				least, seen.To, again = v, v.Replicas, others > 0
			}
			others++
		}
		if !again || change.Probe {
			if q == preCreatePool {
				*change.Pool = *seen.Pool
			}
			return least, nil
		}
	}
	return Verdict{}, errors.New("admission plugins do not agree: each round of questions admitted less than the one before")
}

// askAbout asks one plugin about a pool. The plugin works on a copy, because it may still run after it was abandoned.
func (c *Chain) askAbout(ctx context.Context, q question, p *asked, change *Change, ask poolQuestion) (Verdict, error) {
	seen := *change
	seen.Pool = change.Pool.DeepCopy()
	v, err := c.ask(ctx, q, p, change.To, func(ctx context.Context) (Verdict, error) { return ask(ctx, &seen) })
	if err != nil {
		return Verdict{}, err
	}
	v.Replicas = min(max(v.Replicas, change.From), change.To)
	if v.Replicas < change.To && v.Reason == "" {
		v.Reason, v.Message = InsufficientResources, fmt.Sprintf("%s admits %d of %d replicas and gives no reason", p.Name(), v.Replicas,
			change.To)
	}
	if q != preCreatePool {
		return v, nil
	}
	if seen.Pool.Name != change.Pool.Name || seen.Pool.Namespace != change.Pool.Namespace ||
		seen.Pool.Spec.Replicas != change.Pool.Spec.Replicas {
		return Verdict{}, fmt.Errorf("admission plugin %s changed the pool's name or replicas; it may edit labels, annotations and the rest of "+
			"spec", p.Name())
	}
	change.Pool = seen.Pool
	return v, nil
}

// ask puts one question to one plugin, with a deadline. It turns a panic into an error.
func (c *Chain) ask(ctx context.Context, q question, p *asked, to int32, call func(context.Context) (Verdict, error)) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	begun := c.clock.Now()
	v, err := p.await(ctx, call)
	outcome := resultOf(v, err, to)
	c.metrics.observe(p.Name(), q, outcome, c.clock.Since(begun))
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("admission", trace.WithAttributes(attribute.String("plugin", p.Name()), attribute.String("question", string(q)),
			attribute.String("result", string(outcome)), attribute.String("reason", string(v.Reason))))
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("admission plugin %s, %s: %w", p.Name(), q, err)
	}
	log.FromContext(ctx).V(1).Info("called an admission plugin", "plugin", p.Name(), "question", q, "result", outcome,
		"replicas", v.Replicas, "reason", v.Reason, "message", v.Message)
	return v, nil
}

// await calls the plugin, and waits no longer than ctx allows, even if the plugin ignores ctx.
func (p *asked) await(ctx context.Context, call func(context.Context) (Verdict, error)) (Verdict, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("%d calls to it are under way already: %w", maxAsked, ctx.Err())
	}
	type reply struct {
		verdict Verdict
		err     error
	}
	replies := make(chan reply, 1)
	go func() {
		var a reply
		defer func() {
			if r := recover(); r != nil {
				a = reply{err: fmt.Errorf("panicked: %v", r)}
				log.FromContext(ctx).Error(a.err, "An admission plugin panicked", "plugin", p.Name(), "stack", string(debug.Stack()))
			}
			<-p.slots
			replies <- a
		}()
		a.verdict, a.err = call(ctx)
	}()
	select {
	case a := <-replies:
		return a.verdict, a.err
	case <-ctx.Done():
		return Verdict{}, fmt.Errorf("no verdict: %w", ctx.Err())
	}
}

// sameIdentity compares the fields by which the pool's reconciler recognizes its Pods.
func sameIdentity(a, b metav1.Object) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace() &&
		equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) &&
		maps.Equal(reserved(a.GetLabels()), reserved(b.GetLabels())) &&
		maps.Equal(reserved(a.GetAnnotations()), reserved(b.GetAnnotations()))
}

func reserved(keys map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range keys {
		if strings.HasPrefix(key, "agentbox.navix.sh/") || strings.HasPrefix(key, "agentbox.io/") {
			out[key] = value
		}
	}
	return out
}
