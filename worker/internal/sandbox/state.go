// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/worker/internal/pause"
)

// Phase is a Pod's place in the life cycle, the value of its phase label.
type Phase string

// The phases. A Pod without the label has none of them and is left alone.
const (
	Idle     Phase = v1alpha1.SandboxPhaseIdle
	Starting Phase = v1alpha1.SandboxPhaseStarting
	Running  Phase = v1alpha1.SandboxPhaseRunning
	Stopping Phase = v1alpha1.SandboxPhaseStopping
	Failed   Phase = v1alpha1.SandboxPhaseFailed
)

// Live reports whether a sandbox in this phase can be used, now or later.
func (p Phase) Live() bool { return p == Starting || p == Running }

// State is the state in a Pod's labels and annotations. A zero field means that they do not have the value.
type State struct {
	Phase Phase
	Pool  types.NamespacedName
	Env   string
	Claim
	ClaimedAt  time.Time
	StartedAt  time.Time
	LastActive time.Time // as recorded; see package idle
	Timeouts   Timeouts
	// Paused means that the sandbox does not have all of its CPU; see package pause.
	Paused bool

	// ContainerID is the sandbox's container, or the one that it had when it ended.
	ContainerID string
	// SwapFrom is the container that ran when the image was changed for the claim.
	SwapFrom string
	// Hooks are the encoded post-start hooks. They stay until the identity is removed; in the phase Running they are done.
	Hooks string

	End          End
	TerminatedAt time.Time
	// RunningImage is the image at the end, before the idle image was put back.
	RunningImage string
}

// Claim is the claim that a sandbox was created for.
type Claim struct {
	ID          string
	KeyHash     string // empty without a claim key, as are the next three
	Key         string
	Attempt     int32
	Proof       string // the hub's; empty for keys of older hubs and of the local API
	Incarnation uint64
	Team        string
	User        string
}

// Timeouts are the timeouts of a sandbox. Zero means none.
type Timeouts struct {
	Idle        time.Duration
	Startup     time.Duration
	MaxLifetime time.Duration
	// FirstActivity is 0 once the sandbox was active, or was changed by its owner.
	FirstActivity time.Duration
}

// Read returns the state of a Pod. Values that cannot be parsed count as absent.
func Read(pod *corev1.Pod) State {
	l, a := pod.Labels, pod.Annotations
	s := State{
		Phase: PhaseOf(pod),
		Pool:  PoolOf(pod),
		Env:   EnvOf(pod),
		Claim: Claim{
			ID:      IDOf(pod),
			KeyHash: l[v1alpha1.ClaimKeyHashLabelKey],
			Key:     a[v1alpha1.ClaimKeyAnnotationKey],
			Proof:   a[v1alpha1.ClaimProofAnnotationKey],
			Team:    a[v1alpha1.LabelTeam],
			User:    a[v1alpha1.LabelUser],
		},
		ClaimedAt:  parseTime(a[v1alpha1.SandboxClaimedAtAnnotationKey]),
		StartedAt:  parseTime(a[v1alpha1.SandboxStartedAtAnnotationKey]),
		LastActive: parseTime(a[v1alpha1.SandboxLastActiveAnnotationKey]),
		Timeouts: Timeouts{
			Idle:          parseSeconds(a[v1alpha1.SandboxIdleTimeoutAnnotationKey]),
			Startup:       parseSeconds(a[v1alpha1.SandboxStartupTimeoutAnnotationKey]),
			MaxLifetime:   parseSeconds(a[v1alpha1.SandboxMaxLifetimeAnnotationKey]),
			FirstActivity: parseSeconds(a[v1alpha1.SandboxFirstActivityTimeoutAnnotationKey]),
		},
		Paused: pause.Marked(pod),

		ContainerID: a[v1alpha1.SandboxContainerIDAnnotationKey],
		SwapFrom:    a[v1alpha1.SwapFromContainerIDAnnotationKey],
		Hooks:       a[v1alpha1.SandboxPostStartHooksAnnotationKey],

		End: End{
			StopReason: v1alpha1.SandboxStopReason(a[v1alpha1.SandboxStopReasonAnnotationKey]),
			Reason:     a[v1alpha1.SandboxFailureReasonAnnotationKey],
			Message:    a[v1alpha1.SandboxFailureMessageAnnotationKey],
			ExitCode:   parseExitCode(a[v1alpha1.SandboxExitCodeAnnotationKey]),
		},
		TerminatedAt: parseTime(a[v1alpha1.SandboxTerminatedAtAnnotationKey]),
	}
	if n, err := strconv.ParseInt(a[v1alpha1.ClaimAttemptAnnotationKey], 10, 32); err == nil && n > 0 {
		s.Attempt = int32(n)
	}
	if n, err := strconv.ParseUint(a[v1alpha1.ClaimIncarnationAnnotationKey], 10, 64); err == nil {
		s.Incarnation = n
	}
	if len(pod.Spec.Containers) > 0 {
		s.RunningImage = parseStringMap(a[v1alpha1.SandboxRunningImagesAnnotationKey])[pod.Spec.Containers[0].Name]
	}
	return s
}

// IdleImage returns the image of a pool's idle Pods.
func IdleImage(pool *v1alpha1.SandboxPoolSpec) string {
	return cmp.Or(pool.IdleImage, DefaultImage(pool))
}

// DefaultImage returns the image for a claim without one.
func DefaultImage(pool *v1alpha1.SandboxPoolSpec) string {
	if len(pool.Template.Spec.Containers) == 0 {
		return ""
	}
	return pool.Template.Spec.Containers[0].Image
}

// MainContainer returns the name of a Pod's first container, which is the sandbox's.
func MainContainer(spec *corev1.PodSpec) string {
	if len(spec.Containers) == 0 {
		return ""
	}
	return spec.Containers[0].Name
}

// reservedDomains are the label domains that have a meaning for Atoll or the scheduler.
var reservedDomains = []string{"agentbox.navix.sh", "agentbox.io", "agents.navix.sh", "scheduling.navix.sh"}

// Reserved reports whether callers must not set a label.
func Reserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}
	return slices.ContainsFunc(reservedDomains, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

// managedLabels returns the labels of the claim. Their list is an annotation that any user with access to the Pod may have edited; an edit
// must not remove Atoll's own labels.
func managedLabels(pod *corev1.Pod) []string {
	keys := splitKeys(pod.Annotations[v1alpha1.SandboxManagedLabelKeysAnnotationKey])
	return slices.DeleteFunc(keys, Reserved)
}

// splitKeys splits a comma-separated list, and returns each key once.
func splitKeys(v string) []string {
	var keys []string
	for key := range strings.SplitSeq(v, ",") {
		if key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
