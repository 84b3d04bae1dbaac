// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

// giveBack releases all held sandboxes.
func (l *load) giveBack(ctx context.Context) {
	for _, sandbox := range l.holdings.Held() {
		l.letGo(ctx, sandbox.GetClaimKey(), sandbox)
	}
}

// straysAfter bounds the time until the federation ends sandboxes that were granted and never returned.
const straysAfter = 45 * time.Second

// wantNoOther returns an error if a sandbox is left after all have been released. Where a program died or a response was lost, one
// without a key may be an orphan that no first-activity timeout ends: it is released here, and counted. orphans returns how many there may
// be. It is called late; because a call that was repeated may have waited for its Pod.
func (l *load) wantNoOther(ctx context.Context, orphans func(context.Context) (int64, error)) error {
	left := func(ctx context.Context) error {
		live, err := l.world.live(ctx)
		return errors.Join(err, wait.If(len(live) == 0, "held by no caller: "+strings.Join(describe(live), "; ")))
	}
	err := wait.Until(ctx, straysAfter, "all sandboxes to be gone", left)
	if err == nil {
		return nil
	}
	most, unknown := orphans(ctx)
	if unknown == nil && most > 0 {
		if err := l.reap(ctx, 0); err != nil {
			return err
		}
		err = wait.Until(ctx, straysAfter, "all sandboxes with keys to be gone", left)
		if n := l.unacknowledged.Load(); n > most {
			err = errors.Join(err, fmt.Errorf("%d sandboxes without a key were held by no caller, and %d responses to claims were lost", n, most))
		}
	}
	if err = errors.Join(err, unknown); err != nil {
		l.clear(ctx)
	}
	return err
}

// undelivered returns how many responses to claims the workers have given that no hub took: they were lost, or their dispatch came twice.
// Each may be of an orphan, even if its claim was served elsewhere meanwhile; while all programs live, nothing else leaves one. Claims with
// a key count as well; because programs do not count them apart.
func (w *world) undelivered(ctx context.Context) (n int64, err error) {
	count := func(program, series string) int64 {
		value, failed := w.SumMetrics(ctx, program, series+`{call="claim",outcome="done"} `)
		err = errors.Join(err, failed)
		return int64(value)
	}
	for _, cluster := range clusters {
		n += count(cluster, "atoll_worker_hub_dispatches_total")
	}
	for i := range max(1, len(w.Hubs())) {
		n -= count(stack.MetricsName(i), "atoll_hub_dispatch_seconds_count")
	}
	return n, err
}

// clear ends all sandboxes, so that a failure here does not fail the next run as well.
func (l *load) clear(ctx context.Context) {
	live, err := l.world.live(ctx)
	if err != nil {
		return // the next run will show it
	}
	for i := range live {
		_ = l.release(ctx, "", &sandboxv1.Sandbox{Id: live[i].Labels[v1alpha1.SandboxIDLabelKey]})
	}
}

// pods returns all Pods of the Env in a cluster, from its API server.
func (w *world) pods(ctx context.Context, cluster string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := w.kube[cluster].List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelEnv: envName}); err != nil {
		return nil, fmt.Errorf("listing Pods in %s: %w", cluster, err)
	}
	return pods.Items, nil
}

// live returns the Pods with sandboxes, from the API servers.
func (w *world) live(ctx context.Context) ([]corev1.Pod, error) {
	var out []corev1.Pod
	for id := range w.kube {
		pods, err := w.pods(ctx, id)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			switch pods[i].Labels[v1alpha1.SandboxPhaseLabelKey] {
			case v1alpha1.SandboxPhaseRunning, v1alpha1.SandboxPhaseStarting:
				if pods[i].DeletionTimestamp == nil {
					out = append(out, pods[i])
				}
			}
		}
	}
	return out, nil
}

func describe(pods []corev1.Pod) []string {
	var out []string
	for i := range pods {
		out = append(out, fmt.Sprintf("%s on pod %s, key %q, attempt %s", pods[i].Labels[v1alpha1.SandboxIDLabelKey], pods[i].Name,
			pods[i].Annotations[v1alpha1.ClaimKeyAnnotationKey], pods[i].Annotations[v1alpha1.ClaimAttemptAnnotationKey]))
	}
	return out
}

// reap releases sandboxes without a key that no caller was given and that are older than age.
func (l *load) reap(ctx context.Context, age time.Duration) error {
	live, err := l.world.live(ctx)
	if err != nil {
		return err
	}
	held := l.holdings.Held()
	for i := range live {
		labels := live[i].Labels
		if held[string(live[i].UID)] != nil || labels[v1alpha1.ClaimKeyHashLabelKey] != "" {
			continue
		}
		if claimedAt, err := time.Parse(time.RFC3339, live[i].Annotations[v1alpha1.SandboxClaimedAtAnnotationKey]); err == nil &&
			time.Since(claimedAt) < age {
			continue
		}
		l.unacknowledged.Add(1)
		if err := l.releaseUntilDone(ctx, "", &sandboxv1.Sandbox{Id: labels[v1alpha1.SandboxIDLabelKey]}); err != nil {
			return fmt.Errorf("a sandbox that no caller was given: %w", err)
		}
	}
	return nil
}

// verdict returns what the callers found wrong.
func (l *load) verdict() []error {
	var errs []error
	for _, b := range l.breaches("") {
		errs = append(errs, b.err)
	}
	return append(append(errs, l.holdings.Wrong()...), l.history.Check()...)
}

// breaches returns those of a kind, or all, except for excused sandboxes.
func (l *load) breaches(kind string) []breach {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []breach
	for _, b := range l.wrong {
		if l.excused[b.sandbox] == "" && (kind == "" || kind == b.kind) {
			out = append(out, b)
		}
	}
	return out
}

// result is the outcome of a run.
type result struct {
	number   int
	name     string
	seed     uint64
	details  string
	recovery time.Duration
	load     *load
	err      error
}

type table struct {
	mu   sync.Mutex
	rows []result
}

var results table

func (t *table) add(r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
	fmt.Fprintf(os.Stderr, "faults: %02d %s, seed %d, %s: recovered in %.1f s, %s\n",
		r.number, r.name, r.seed, r.details, r.recovery.Seconds(), r.verdict())
}

func (r result) verdict() string {
	if r.err != nil {
		return "FAILED"
	}
	return "ok"
}

// print prints the recovery times, and what the callers met meanwhile.
func (t *table) print(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "fault\tseed\tat\trecovered s\tclaims\tsandboxes\tdouble\tlost\tevicted\tunacknowledged\trestarts\trefusals\tresult")
	for _, r := range t.rows {
		l := r.load
		fmt.Fprintf(out, "%02d %s\t%d\t%s\t%.1f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%s\n", r.number, r.name, r.seed, r.details, r.recovery.Seconds(),
			l.begun.Load(), l.holdings.Counts().Answered, l.holdings.Counts().Doubled, len(l.breaches(lost)), len(l.breaches(evicted)),
			l.unacknowledged.Load(), l.restarts, l.refusals, r.verdict())
	}
	_ = out.Flush()
}
