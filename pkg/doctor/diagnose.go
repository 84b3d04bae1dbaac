// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/plural"
	"navix.sh/atoll/pkg/verify"
)

// Diagnose returns all problems, worst first.
func Diagnose(s *Snapshot) []Diagnosis {
	var all []Diagnosis
	for _, look := range []func(*Snapshot) []Diagnosis{
		blindness, hubItself, ends, versions, clusters, members, conditions, standalone, foreignControllers, installations, pods, clocks,
	} {
		all = append(all, look(s)...)
	}
	return order(all)
}

// kubectl returns the start of a kubectl command for a cluster.
func (s *Snapshot) kubectl(cluster string) string {
	if site := s.Sites[cluster]; site != nil && site.Context != "" {
		return "kubectl --context " + site.Context
	}
	return "in cluster " + cluster + ": kubectl"
}

func (s *Snapshot) namespace(cluster string) string {
	if site := s.Sites[cluster]; site != nil && site.Namespace != "" {
		return site.Namespace
	}
	return "atoll-system"
}

// logs returns the command that prints the logs of a cluster's worker.
func (s *Snapshot) logs(cluster string) string {
	return fmt.Sprintf("%s -n %s logs -l app.kubernetes.io/name=atoll-worker --tail=50", s.kubectl(cluster), s.namespace(cluster))
}

// hubNow returns the hub's time, which decides when certificates and keys expire.
func (s *Snapshot) hubNow() time.Time {
	if s.Hub != nil && !s.Hub.Clock.Now.IsZero() {
		return s.Hub.Clock.Now
	}
	return s.Now
}

// blindness reports the parts that do not respond. As far as can be seen from here, such a part cannot serve either.
func blindness(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	for _, b := range s.Blind {
		id, cluster := strings.CutPrefix(b.What, "cluster ")
		switch {
		case b.What == "hub" && b.Refused:
			out = append(out, Diagnosis{Reason: APIKeyRefused, Severity: Critical, Object: "API key", What: "the hub refuses it: " + b.Why,
				Do: "give a key that it knows: --token-file; a new one: atoll-hub api-key new --name …, and add what it prints to the hub's keys file"})
		case b.What == "hub" && strings.Contains(b.Why, "x509: "):
			out = append(out, Diagnosis{Reason: CertificateRefused, Severity: Critical, Object: "hub",
				What: "its certificate is not accepted: " + b.Why,
				Do:   "is --ca-file the CA that it comes from, and --server one of its names? atollctl pki hub --host … --renew | sh"})
		case b.What == "hub":
			out = append(out, Diagnosis{Reason: HubUnreachable, Severity: Critical, Object: "hub",
				What: "does not respond: " + b.Why,
				Do: "callers without a hub are served by each worker's local API meanwhile\n" +
					"in the hub's cluster: kubectl -n atoll-system get pods,events -l app.kubernetes.io/name=atoll-hub\n" +
					"in the hub's cluster: kubectl -n atoll-system logs -l app.kubernetes.io/name=atoll-hub --tail=50"})
		case cluster && len(missingCRDs(s.Sites[id])) > 0: // this is the cause
		case cluster && b.Refused:
			out = append(out, Diagnosis{Reason: NotTold, Severity: Warning, Cluster: id, Object: "cluster " + id,
				What: "may not be looked at: " + b.Why,
				Do:   "ask with the rights of a cluster administrator"})
		case cluster:
			out = append(out, Diagnosis{Reason: APIServerAway, Severity: Warning, Cluster: id, Object: "cluster " + id,
				What: "cannot be looked at from here: " + b.Why, Do: s.kubectl(id) + " get --raw /readyz?verbose"})
		default:
			out = append(out, Diagnosis{Reason: NotTold, Severity: Info, Object: b.What, What: b.Why, Do: "check the address"})
		}
	}
	return out
}

func hubItself(s *Snapshot) []Diagnosis {
	if s.Hub == nil {
		return nil
	}
	var out []Diagnosis
	if len(s.Hub.Clusters) == 0 {
		out = append(out, Diagnosis{Reason: NoClusters, Severity: Critical, Object: "hub", What: "no cluster has ever registered",
			Do: "invite one, and install its worker with what that prints: atollctl cluster invite CLUSTER"})
	}
	status := s.Hub.Status
	if status == nil {
		return out
	}
	since := s.since(status.GetSince())
	awaited := strings.Join(status.GetAwaitedClusters(), ", ")
	switch {
	case status.GetRecovering():
		out = append(out, Diagnosis{Reason: HubRecovering, Severity: Critical, Object: "hub", Since: since,
			What: fmt.Sprintf("serves no claim with a key (%s): it waits for the keys of %s", status.GetReason(), awaited),
			Do: "bring the workers of " + awaited + " back; it ends by itself when they have told their keys\n" +
				"one that never comes back: atollctl cluster forget ID\n" +
				"if keys may get a second sandbox: atollctl hub accept-loss"})
	case awaited != "":
		out = append(out, Diagnosis{Reason: LossAccepted, Severity: Warning, Object: "hub", Since: since,
			What: "the loss of claim keys was accepted; claims with a key go to none of " + awaited + " until they are heard",
			Do:   "bring the workers of " + awaited + " back, or: atollctl cluster forget ID"})
	}
	if why := status.GetStoreFailure(); why != "" {
		out = append(out, Diagnosis{Reason: StoreFailing, Severity: Critical, Object: "hub",
			What: "cannot write down claims: " + why,
			Do: "a full disk: give the volume of the hub more room; writes go on by themselves\n" +
				"a damaged file: keep the volume, and restore: atollctl hub restore --help"})
	}
	return append(out, replicas(s.Hub.Replicas)...)
}

// replicas reports the replicas that are alive according to gossip but that the replica which was asked cannot reach.
func replicas(all []*sandboxv1.Replica) (out []Diagnosis) {
	asked := ""
	for _, r := range all {
		if r.GetSelf() {
			asked = r.GetName()
		}
	}
	for _, r := range all {
		if !r.GetReachable() {
			out = append(out, Diagnosis{Reason: ReplicaUnreachable, Severity: Warning, Object: "hub replica " + r.GetName(),
				What: fmt.Sprintf("is alive, but replica %s cannot reach it at %s: calls that come to %s do not reach its clusters", asked,
					r.GetAddress(), asked),
				Do: "look at the network policy of port 8444, and at the certificates: both must be the hub's, of one CA\n" +
					"what each replica sees: atollctl hub replicas"})
		}
	}
	return out
}

// since returns how long ago a time of the hub's own clock was.
func (s *Snapshot) since(t *timestamppb.Timestamp) time.Duration {
	if t == nil {
		return 0
	}
	return max(0, s.hubNow().Sub(t.AsTime()))
}

const (
	// certificateLife is the assumed lifetime of a certificate if the hub does not report it. A certificate with less than a fifth of its
	// lifetime left should have been renewed; with less than a tenth it is critical.
	certificateLife                         = 30 * 24 * time.Hour
	certificateSoonPart, certificateNowPart = 5, 10

	keySoon = 7 * 24 * time.Hour
	// keyNow is the remaining time at which the expiry of a key becomes critical.
	keyNow = 24 * time.Hour
)

// ends reports certificates and keys that expire soon.
func ends(s *Snapshot) []Diagnosis {
	if s.Hub == nil {
		return nil
	}
	var out []Diagnosis
	check := func(at *timestamppb.Timestamp, soon, atOnce time.Duration, d Diagnosis) {
		if at == nil || at.AsTime().Unix() <= 0 {
			return
		}
		left := at.AsTime().Sub(s.hubNow())
		switch {
		case left > soon:
			return
		case left <= 0:
			d.Severity, d.What, d.Since = Critical, d.What+" has ended", -left
		case left <= atOnce:
			d.Severity, d.What = Critical, d.What+" ends in "+duration.HumanDuration(left)
		default:
			d.Severity, d.What = Warning, d.What+" ends in "+duration.HumanDuration(left)
		}
		out = append(out, d)
	}
	certificate := func(at *timestamppb.Timestamp, life *durationpb.Duration, d Diagnosis) {
		lasts := life.AsDuration()
		if lasts <= 0 {
			lasts = certificateLife
		}
		check(at, lasts/certificateSoonPart, lasts/certificateNowPart, d)
	}
	const manager = "with cert-manager: kubectl -n atoll-system describe certificate\n"
	if status := s.Hub.Status; status != nil {
		certificate(status.GetCertificateExpires(), status.GetCertificateLifetime(), Diagnosis{Reason: CertificateEnding, Object: "hub",
			What: "its certificate",
			Do:   manager + "else: atollctl pki hub --host … --renew | sh"})
		check(status.GetApiKeyExpires(), keySoon, keyNow, Diagnosis{Reason: APIKeyEnding, Object: "API key",
			What: "the key that this was asked with",
			Do:   "atoll-hub api-key new --name …, add what it prints to the hub's keys file, and use the new token"})
	}
	for _, c := range s.Hub.Clusters {
		certificate(c.GetCertificateExpires(), c.GetCertificateLifetime(), Diagnosis{Reason: CertificateEnding, Cluster: c.GetId(),
			Object: "cluster " + c.GetId(), What: "its worker's certificate",
			Do: "issued by the hub, which renews it over the link: see why it did not: " + s.logs(c.GetId()) + "\n" + manager +
				"else: atollctl pki cluster " + c.GetId() + " --renew | sh\n" +
				"once it has ended, a cluster of the hub's CA comes back by: atollctl cluster invite " + c.GetId()})
	}
	return out
}

// versions reports parts of the federation that run different builds.
func versions(s *Snapshot) []Diagnosis {
	if s.Hub == nil || s.Hub.Status == nil {
		return nil
	}
	hub, of := s.Hub.Status.GetVersion(), map[string][]string{}
	for _, c := range s.Hub.Clusters {
		if v := c.GetVersion(); v != "" && v != hub {
			of[v] = append(of[v], c.GetId())
		}
	}
	var out []Diagnosis
	for version, ids := range of {
		out = append(out, Diagnosis{Reason: VersionsDiffer, Severity: Info, Object: "workers of " + strings.Join(ids, ", "),
			What: fmt.Sprintf("are %s, the hub is %s", version, hub),
			Do:   "neighbouring versions work together; finish the upgrade: helm upgrade atoll-worker charts/worker -n atoll-system --reuse-values"})
	}
	return out
}

func clusters(s *Snapshot) []Diagnosis {
	if s.Hub == nil {
		return nil
	}
	var out []Diagnosis
	for _, c := range s.Hub.Clusters {
		d := Diagnosis{Cluster: c.GetId(), Object: "cluster " + c.GetId(), Since: c.GetLastSeen().AsDuration()}
		switch c.GetState() {
		case sandboxv1.ClusterState_UNREACHABLE:
			d.Reason, d.Severity, d.What = ClusterUnreachable, Critical, "gets no claims: "+c.GetMessage()
			d.Do = s.whyAway(c.GetId())
			if up, known := s.hubUp(); known && up < attachSoon && c.GetLastSeen() == nil {
				d.Severity, d.Do = Info, fmt.Sprintf("wait: the hub started %s ago, and workers attach again within half a minute",
					duration.HumanDuration(up))
			}
		case sandboxv1.ClusterState_SUSPECT:
			d.Reason, d.Severity, d.What = ClusterSilent, Warning, "gets claims only where no other cluster can serve them: "+c.GetMessage()
			d.Do = s.whyAway(c.GetId())
		case sandboxv1.ClusterState_DEGRADED:
			d.Reason, d.Severity, d.What, d.Since = ClusterDegraded, Warning, c.GetMessage(), 0
			d.Do = "everything else of it counts. Over a limit: raise it (atoll-hub --cluster-max-…) or have less. Not valid: no worker sends it; " +
				"if its certificate is in wrong hands, atollctl cluster drain " + c.GetId() + " and forget it"
		case sandboxv1.ClusterState_QUARANTINED:
			d.Reason, d.Severity, d.What, d.Since = ClusterQuarantined, Critical, c.GetMessage(), 0
			d.Do = "each cluster needs an id of its own; a copy of a cluster gets another --cluster-id and certificate before its worker starts"
		case sandboxv1.ClusterState_DRAINING:
			d.Reason, d.Severity, d.Since = ClusterDraining, Info, 0
			d.What = fmt.Sprintf("gets no new claims; %s left", plural.Form(c.GetRunning(), "sandbox is", "sandboxes are"))
			d.Do = "to end it: atollctl cluster undrain " + c.GetId() + "\nto remove it once it is empty: atollctl cluster forget " + c.GetId()
		default:
			continue
		}
		if c.GetRevoked() {
			d.Do = "if it may come back, give its worker the token of: atollctl cluster invite " + c.GetId() +
				"\nif not: atollctl cluster forget " + c.GetId()
		}
		out = append(out, d)
	}
	for i := range s.Clusters {
		id := s.Clusters[i].ID
		if !slices.ContainsFunc(s.Hub.Clusters, func(c *sandboxv1.Cluster) bool { return c.GetId() == id }) {
			out = append(out, Diagnosis{Reason: ClusterUnregistered, Severity: Warning, Cluster: id, Object: "cluster " + id,
				What: "the hub does not know it",
				Do: "is it called so at the hub? atollctl clusters\nelse see why its worker does not attach: " + s.logs(id) +
					"\nif it was forgotten: atollctl cluster undrain " + id})
		}
	}
	return out
}

// attachSoon is how long workers may take to attach to a hub after its start. They try at least every half minute.
const attachSoon = 40 * time.Second

// hubUp returns how long the hub that was asked has been running.
func (s *Snapshot) hubUp() (up time.Duration, known bool) {
	for _, r := range s.Hub.Replicas {
		if r.GetSelf() && r.GetSince() != nil {
			return s.since(r.GetSince()), true
		}
	}
	return 0, false
}

// whyAway returns what to check first, based on what the cluster itself shows.
func (s *Snapshot) whyAway(id string) string {
	c := s.cluster(id)
	switch {
	case c == nil:
		return fmt.Sprintf("see whether its worker runs: %s -n %s get lease,pods\n%s\none that never comes back: atollctl cluster forget %s",
			s.kubectl(id), s.namespace(id), s.logs(id), id)
	case c.Leads():
		held := "its worker holds the lease"
		if age := c.Lease.Age; age != nil {
			held += ", renewed " + duration.HumanDuration(*age) + " ago"
		}
		return held + "; unless it has just ended, look at the network and the certificates between: " + s.logs(id)
	default:
		return "its worker does not run: see the lease there"
	}
}

// skewed is the smallest clock difference that is reported.
const skewed = 30 * time.Second

func clocks(s *Snapshot) []Diagnosis {
	var out []Diagnosis
	check := func(cluster, object string, c verify.Clock) {
		if d := c.Offset.Round(time.Second); !c.Now.IsZero() && d.Abs() > skewed {
			way := "ahead of"
			if d < 0 {
				way = "behind"
			}
			out = append(out, Diagnosis{Reason: ClockSkewed, Severity: Info, Cluster: cluster, Object: object,
				What: fmt.Sprintf("its clock is %s %s this machine's", d.Abs(), way),
				Do:   "nothing is decided by it, but certificates, API keys and what people read are; look at time synchronisation there"})
		}
	}
	for i := range s.Clusters {
		check(s.Clusters[i].ID, "API server", s.Clusters[i].Clock)
	}
	if s.Hub != nil {
		check("", "hub", s.Hub.Clock)
	}
	return out
}
