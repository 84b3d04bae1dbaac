// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"navix.sh/atoll/pkg/foreigncontroller"
	"navix.sh/atoll/pkg/verify"
)

// Snapshot is the input of Diagnose.
type Snapshot struct {
	*verify.Snapshot
	// Now is this machine's time. It is used where no other clock was read.
	Now time.Time
	// Sites are the clusters whose API servers were read, by cluster id.
	Sites map[string]*Site
}

// Site is what is installed in a cluster.
type Site struct {
	Context   string // of kubectl
	Namespace string // namespace of the worker
	// CRDs are the fields of this build that the cluster's CRDs lack, by name of the CRD. Nil: the CRD is not installed.
	CRDs map[string]*CRD
	// Denied are permissions that the worker's ServiceAccounts lack.
	Denied []string
	// Policies are the bound admission policies.
	Policies []string
	// Workers are the Deployments of workers.
	Workers []Workload
	// Pods of the workers' namespace.
	Pods []corev1.Pod
	// ForeignLeases are the leases that other controllers of the same objects hold or held.
	ForeignLeases []foreigncontroller.Lease
	// Unread is what could not be read.
	Unread []Unread
}

// Unread is something that could not be read.
type Unread struct {
	What string // with the reason
	Late bool   // the API server did not respond in time
}

// Whole reports whether everything could be read.
func (s *Snapshot) Whole() bool {
	for _, site := range s.Sites {
		if len(site.Unread) > 0 {
			return false
		}
	}
	return len(s.Blind) == 0
}

// cluster returns what a cluster's API server has, or nil if it was not read.
func (s *Snapshot) cluster(id string) *verify.Cluster {
	for i := range s.Clusters {
		if s.Clusters[i].ID == id {
			return &s.Clusters[i]
		}
	}
	return nil
}

// CRD lists what an installed CRD lacks.
type CRD struct {
	Missing []string // paths of fields
}

// Workload is a Deployment.
type Workload struct {
	Name              string
	Wanted, Available int32
	Message           string    // why it is not available
	Since             time.Time // when it became unavailable; zero: unknown
	// Namespaces are the namespaces that the Deployment serves; none means all.
	Namespaces []string
}

// Severity ranks a diagnosis.
type Severity string

// The severities, worst first.
const (
	Critical Severity = "critical" // callers are not served, or will not be within a day
	Warning  Severity = "warning"  // something is worse than it should be
	Info     Severity = "info"     // intended, or worth knowing
)

var severities = []Severity{Critical, Warning, Info}

// Reason is the type of a diagnosis, for programs.
type Reason string

// The reasons.
const (
	HubUnreachable      Reason = "HubUnreachable"
	HubRecovering       Reason = "HubRecovering"
	LossAccepted        Reason = "LossAccepted"
	StoreFailing        Reason = "StoreFailing"
	ReplicaUnreachable  Reason = "ReplicaUnreachable"
	CertificateEnding   Reason = "CertificateEnding"
	CertificateRefused  Reason = "CertificateRefused"
	APIKeyEnding        Reason = "APIKeyEnding"
	APIKeyRefused       Reason = "APIKeyRefused"
	VersionsDiffer      Reason = "VersionsDiffer"
	NoClusters          Reason = "NoClusters"
	ClusterUnreachable  Reason = "ClusterUnreachable"
	ClusterSilent       Reason = "ClusterSilent"
	ClusterQuarantined  Reason = "ClusterQuarantined"
	ClusterDegraded     Reason = "ClusterDegraded"
	ClusterDraining     Reason = "ClusterDraining"
	ClusterUnregistered Reason = "ClusterUnregistered"
	ClockSkewed         Reason = "ClockSkewed"
	MemberMissing       Reason = "MemberMissing"
	MemberInconsistent  Reason = "MemberInconsistent"
	EnvExhausted        Reason = "EnvExhausted"
	EnvSaturated        Reason = "EnvSaturated"
	PodsNotReady        Reason = "PodsNotReady"
	EnvNotReady         Reason = "EnvNotReady"
	EnvNotFederated     Reason = "EnvNotFederated"
	TemplateDiffers     Reason = "TemplateDiffers"
	AutoscalingStopped  Reason = "AutoscalingStopped"
	APIServerAway       Reason = "APIServerUnreachable"
	CRDMissing          Reason = "CRDMissing"
	CRDOld              Reason = "CRDOld"
	NoLeader            Reason = "NoLeader"
	WorkerMissing       Reason = "WorkerMissing"
	WorkerUnavailable   Reason = "WorkerUnavailable"
	RightsMissing       Reason = "RightsMissing"
	PolicyMissing       Reason = "PolicyMissing"
	ImagePullFailing    Reason = "ImagePullFailing"
	ContainersCrashing  Reason = "ContainersCrashing"
	PodsUnschedulable   Reason = "PodsUnschedulable"
	ControlledByAnother Reason = "ControlledByAnother"
	NotTold             Reason = "NotTold"
)

// Diagnosis is one problem.
type Diagnosis struct {
	Reason   Reason   `json:"reason"`
	Severity Severity `json:"severity"`
	Cluster  string   `json:"cluster,omitempty"` // empty: the hub, or the whole federation
	Object   string   `json:"object"`
	What     string   `json:"what"`
	// Since is how long the problem has existed; 0: unknown.
	Since time.Duration `json:"-"`
	// Do is the remedy: a sentence, a command, or both.
	Do string `json:"do"`
}

// MarshalJSON encodes the duration as text.
func (d Diagnosis) MarshalJSON() ([]byte, error) {
	type plain Diagnosis
	out := struct {
		plain
		Since string `json:"since,omitempty"`
	}{plain: plain(d)}
	if d.Since > 0 {
		out.Since = d.Since.Round(time.Second).String()
	}
	return json.Marshal(out)
}

// order sorts diagnoses, worst first.
func order(all []Diagnosis) []Diagnosis {
	slices.SortFunc(all, func(a, b Diagnosis) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.What, b.What))
	})
	return slices.Compact(all)
}

// Text renders diagnoses for users.
func Text(all []Diagnosis) string {
	var b strings.Builder
	for _, d := range all {
		where := d.Object
		if d.Cluster != "" && d.Object != "cluster "+d.Cluster {
			where = d.Cluster + ", " + d.Object
		}
		fmt.Fprintf(&b, "%-8s  %s: %s", d.Severity, where, d.What)
		if d.Since > 0 {
			fmt.Fprintf(&b, ", for %s", duration.HumanDuration(d.Since))
		}
		fmt.Fprintf(&b, " (%s)\n", d.Reason)
		for _, line := range strings.Split(d.Do, "\n") {
			fmt.Fprintf(&b, "          → %s\n", line)
		}
	}
	return b.String()
}
