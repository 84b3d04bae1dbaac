// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
)

// peer is one end of a connection; without a namespace it is no Pod.
type peer struct {
	address, namespace string
	labels             labels.Set
}

var (
	sandbox = peer{"10.1.0.9", "prod", labels.Set{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer,
		v1alpha1.SandboxPoolLabelKey: "told", "x": "y"}}
	sibling = peer{"10.1.0.8", "prod", sandbox.labels}
	other   = peer{"10.1.0.7", "prod", labels.Set{v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer,
		v1alpha1.SandboxPoolLabelKey: "other"}}
	worker   = peer{"10.1.0.2", "atoll-system", labels.Set{"app": "worker", "pod-template-hash": "1"}}
	hub      = peer{"10.1.0.3", "atoll-system", labels.Set{"app": "hub"}}
	impostor = peer{"10.1.0.4", "prod", labels.Set{"app": "worker"}}
	coreDNS  = peer{"10.1.0.53", "kube-system", labels.Set{"k8s-app": "kube-dns"}}
)

func outside(address string) peer { return peer{address: address} }

func poolTold() *v1alpha1.SandboxPool {
	return &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "told", UID: "u"}}
}

// policiesFor renders an annotation as the API server would read it.
func policiesFor(t *testing.T, egress string) (out []*networkingv1.NetworkPolicy) {
	t.Helper()
	e, err := ParseEgress(egress)
	must.Succeed(t, err)
	for _, rendered := range []*unstructured.Unstructured{
		Policy(poolTold(), Worker{Namespace: "atoll-system", Labels: map[string]string{"app": "worker"}}), Opening(poolTold(), e),
	} {
		if rendered == nil {
			continue
		}
		policy := &networkingv1.NetworkPolicy{}
		must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered.Object, policy, true))
		out = append(out, policy)
	}
	return out
}

// allows decides as the specification of NetworkPolicies does: whether a connection is let out of from, and into to.
func allows(policies []*networkingv1.NetworkPolicy, from, to peer, port string) bool {
	outClosed, out, inClosed, in := false, false, false, false
	for _, p := range policies {
		selected := func(x peer) bool {
			return x.namespace == p.Namespace && matches(&p.Spec.PodSelector, x.labels)
		}
		if selected(from) && slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			outClosed = true
			out = out || slices.ContainsFunc(p.Spec.Egress,
				func(r networkingv1.NetworkPolicyEgressRule) bool { return ruled(p, r.To, r.Ports, to, port) })
		}
		if selected(to) && slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			inClosed = true
			in = in || slices.ContainsFunc(p.Spec.Ingress,
				func(r networkingv1.NetworkPolicyIngressRule) bool { return ruled(p, r.From, r.Ports, from, port) })
		}
	}
	return (out || !outClosed) && (in || !inClosed)
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

func ruled(
	p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, x peer, port string,
) bool {
	of := func(q networkingv1.NetworkPolicyPeer) bool {
		if q.IPBlock != nil {
			address := netip.MustParseAddr(x.address)
			return netip.MustParsePrefix(q.IPBlock.CIDR).Contains(address) &&
				!slices.ContainsFunc(q.IPBlock.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(address) })
		}
		inNamespace := x.namespace == p.Namespace
		if q.NamespaceSelector != nil {
			inNamespace = x.namespace != "" && matches(q.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": x.namespace})
		}
		return inNamespace && (q.PodSelector == nil || matches(q.PodSelector, x.labels))
	}
	on := func(q networkingv1.NetworkPolicyPort) bool {
		return fmt.Sprintf("%s/%s", q.Port.String(), *q.Protocol) == port
	}
	return (len(peers) == 0 || slices.ContainsFunc(peers, of)) && (len(ports) == 0 || slices.ContainsFunc(ports, on))
}

// TestI14SandboxesReachWhatIsListed judges policies by their effect.
func TestI14SandboxesReachWhatIsListed(t *testing.T) {
	type connection struct {
		from, to peer
		port     string
	}
	in := func(from peer) connection { return connection{from, sandbox, "8000/TCP"} }
	to := func(address, port string) connection { return connection{sandbox, outside(address), port} }
	dns := connection{sandbox, coreDNS, "53/UDP"}
	const cloud, cloud6 = "169.254.169.254", "fd00:ec2::254"
	for egress, want := range map[string]struct{ open, closed []connection }{
		"": {
			open: []connection{in(worker), {other, hub, "80/TCP"}, {other, outside("192.0.2.1"), "80/TCP"}},
			closed: []connection{
				in(hub), in(impostor), in(sibling), in(other), in(outside("192.0.2.1")), dns, {sandbox, sibling, "80/TCP"},
				{sandbox, worker, "8082/TCP"},
				to("192.0.2.1", "443/TCP"), to("10.96.0.1", "443/TCP"), to(cloud, "80/TCP"), to("2001:db8::1", "443/TCP"),
			},
		},
		"dns": {
			open: []connection{dns, {sandbox, coreDNS, "53/TCP"}, to("169.254.20.10", "53/UDP")},
			closed: []connection{{sandbox, coreDNS, "9153/TCP"}, {sandbox, worker, "53/UDP"}, to("192.0.2.53", "53/UDP"), to(cloud, "53/UDP"),
				in(hub)},
		},
		"192.0.2.0/24 443 8443/udp, 2001:db8::1": {
			open: []connection{to("192.0.2.1", "443/TCP"), to("192.0.2.1", "8443/UDP"), to("2001:db8::1", "22/TCP")},
			closed: []connection{to("192.0.2.1", "80/TCP"), to("192.0.2.1", "443/UDP"), to("192.0.3.1", "443/TCP"), to("2001:db8::2", "22/TCP"),
				dns},
		},
		"0.0.0.0/0\n::/0": {
			open: []connection{to("192.0.2.1", "80/TCP"), to("10.96.0.1", "443/TCP"), to("169.253.0.1", "80/TCP"), to("2001:db8::1", "1/TCP")},
			closed: []connection{to(cloud, "80/TCP"), to("169.254.0.1", "80/TCP"), to("168.63.129.16", "80/TCP"), to("100.100.100.200", "80/TCP"),
				to(cloud6, "80/TCP"), to("fe80::1", "1/TCP")},
		},
		"internet 443": {
			open: []connection{to("192.0.2.1", "443/TCP"), to("2606:4700::1", "443/TCP")},
			closed: []connection{to("192.0.2.1", "80/TCP"), to("10.96.0.1", "443/TCP"), to("172.16.9.9", "443/TCP"), to("192.168.1.1", "443/TCP"),
				to("fd12::1", "443/TCP"), to(cloud, "443/TCP"), {sandbox, sibling, "443/TCP"}},
		},
		"169.254.169.254/32 80": {open: []connection{to(cloud, "80/TCP")}, closed: []connection{to(cloud, "443/TCP"),
			to("169.254.169.253", "80/TCP")}},
	} {
		policies := policiesFor(t, egress)
		for _, c := range want.open {
			if !allows(policies, c.from, c.to, c.port) {
				t.Errorf("%q: %v → %v %s is closed", egress, c.from, c.to, c.port)
			}
		}
		for _, c := range want.closed {
			if allows(policies, c.from, c.to, c.port) {
				t.Errorf("%q: %v → %v %s is open", egress, c.from, c.to, c.port)
			}
		}
		for _, c := range want.open {
			if c.from.address == sandbox.address {
				c.from.labels = labels.Merge(c.from.labels, labels.Set{v1alpha1.EgressLabelKey: v1alpha1.EgressDenied})
				if allows(policies, c.from, c.to, c.port) {
					t.Errorf("%q: %v → %v %s is open for a sandbox whose claim denies it", egress, c.from, c.to, c.port)
				}
			}
		}
	}
}

// TestI14NoTwoPoliciesHaveOneName: a pool without egress deletes its opening policy by name, which must not be what closes another pool.
func TestI14NoTwoPoliciesHaveOneName(t *testing.T) {
	e, err := ParseEgress("dns, pypi.org")
	must.Succeed(t, err)
	of := map[string]string{}
	for _, name := range []string{"web", "web-egress", "web-egress-egress", "egress", "egress-web", "pool-web", "pool"} {
		pool := poolTold()
		pool.Name = name
		for _, o := range []*unstructured.Unstructured{Policy(pool, Worker{}), Opening(pool, e), Names(pool, e)} {
			key := o.GetKind() + " " + o.GetName()
			if other, taken := of[key]; taken {
				t.Errorf("%s is of the pools %s and %s", key, other, name)
			}
			of[key] = name
		}
	}
}

// TestParseEgressRefuses: an annotation is bounded, and an error names the item and what is valid.
func TestParseEgressRefuses(t *testing.T) {
	for value, want := range map[string]string{
		"10.0.0.1/8": `"10.0.0.1/8" has bits behind its length; its network is 10.0.0.0/8; ` +
			`valid: items by comma or line`,
		"dns, 10.0.0.0/33":                       `"10.0.0.0/33" is no item`,
		"dns 53":                                 "has ports, which dns does not take",
		"DNS":                                    "is no item",
		"10.0.0.0/8 0":                           `port "0"`,
		"10.0.0.0/8 65536":                       `port "65536"`,
		"10.0.0.0/8 443/icmp":                    `port "443/icmp", whose protocol`,
		"10.0.0.0/8 443/":                        `port "443/"`,
		"10.0.0.0/8 1 2 3 4 5 6 7 8 9":           "has 9 ports, more than 8",
		"::ffff:169.254.169.254":                 "is an IPv4 address written as IPv6",
		"::ffff:0.0.0.0/96":                      "is an IPv4 address written as IPv6",
		"fe80::1%eth0":                           "is no item",
		"127.0.0.1":                              "loopback or multicast",
		"224.0.0.0/4":                            "loopback or multicast",
		"*":                                      "is no item",
		"a.*.org":                                "is no item",
		"example.org:443":                        "is no item",
		strings.Repeat("a", 5000):                "is 5000 bytes, more than 4096",
		strings.Repeat("10.0.0.0/8,", 65):        "is item 65, more than 64",
		strings.Repeat("a", 64) + ".example.org": "is no item",
		"https://example.org":                    "is no item",
		"10.0.0.0/8; 0.0.0.0/0":                  `port "0.0.0.0/0"`,
		"10.0.0.0/8 443 example.org, \x00, dns":  "port",
	} {
		if e, err := ParseEgress(value); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 600 {
			t.Errorf("%q: %+v, %v\nwant %q", value, e, err, want)
		}
	}
}

// TestNames: with Cilium, Pods ask for the listed names alone, and reach what the answers say.
func TestNames(t *testing.T) {
	e, err := ParseEgress("pypi.org 443, *.example.org.")
	must.Succeed(t, err)
	if Names(poolTold(), &Egress{DNS: true}) != nil {
		t.Error("a policy of no names")
	}
	got, err := json.Marshal(Names(poolTold(), e).Object["spec"])
	const want = `{"egress":[` +
		`{"toEndpoints":[{"matchLabels":{"k8s:io.kubernetes.pod.namespace":"kube-system","k8s:k8s-app":"kube-dns"}}],` +
		`"toPorts":[{"ports":[{"port":"53","protocol":"ANY"}],"rules":{"dns":[{"matchName":"pypi.org"},{"matchPattern":"*.example.org"}]}}]},` +
		`{"toFQDNs":[{"matchName":"pypi.org"}],"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]},` +
		`{"toFQDNs":[{"matchPattern":"*.example.org"}]}],` +
		`"endpointSelector":{"matchExpressions":[{"key":"agentbox.navix.sh/egress","operator":"NotIn","values":["denied"]}],` +
		`"matchLabels":{"agentbox.navix.sh/managed-by":"sandbox-api-server","agentbox.navix.sh/sandbox-pool":"told"}}}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if policies := policiesFor(t, "pypi.org 443"); len(policies) > 1 {
		t.Errorf("without Cilium a name opens %+v", policies[1].Spec.Egress)
	}
}

// TestRestrict: metadata services are opened by the template's own list alone.
func TestRestrict(t *testing.T) {
	parse := func(value string) *Egress {
		e, err := ParseEgress(value)
		must.Succeed(t, err)
		return e
	}
	pool := parse("10.0.0.0/8, 169.254.169.254, fd00:ec2::254, 169.254.0.0/16")
	for template, want := range map[string]string{
		"":                              "10.0.0.0/8",
		"169.254.169.254, 192.0.2.0/24": "10.0.0.0/8 169.254.169.254/32",
		"0.0.0.0/0":                     "10.0.0.0/8",
	} {
		e, left := pool.Restrict(parse(template))
		var open []string
		for _, b := range e.Blocks {
			open = append(open, b.CIDR.String())
		}
		if strings.Join(open, " ") != want || len(left)+len(open) != 4 {
			t.Errorf("%q: opens %q, leaves out %v", template, open, left)
		}
	}
	if e, _ := pool.Restrict(nil); len(e.Blocks) != 1 {
		t.Errorf("without a template: %+v", e.Blocks)
	}
}

func FuzzParseEgress(f *testing.F) {
	f.Add("dns, internet 443, 10.0.0.0/8 53/udp\n*.example.org, 2001:db8::/32")
	f.Fuzz(func(t *testing.T, value string) {
		e, err := ParseEgress(value)
		if err != nil {
			return
		}
		if len(e.Blocks)+len(e.Names) > 2*maxItems {
			t.Errorf("%d blocks, %d names", len(e.Blocks), len(e.Names))
		}
		for _, b := range e.Blocks {
			for _, x := range b.Except {
				if x.Bits() <= b.CIDR.Bits() || !b.CIDR.Contains(x.Addr()) {
					t.Errorf("%s is not within %s, as the API server wants", x, b.CIDR)
				}
			}
		}
	})
}
