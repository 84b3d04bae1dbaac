// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"navix.sh/atoll/api/v1alpha1"
)

// Kinds of the rendered objects.
var (
	policyKind = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	ciliumKind = schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNetworkPolicy"}
)

// nodeDNS is the address of NodeLocal DNSCache on every node.
const nodeDNS = "169.254.20.10/32"

// Worker selects the Pods of the worker, which connects to Pods of pools: those with these labels in a namespace.
type Worker struct {
	Namespace string
	Labels    map[string]string
}

type doc = map[string]any

// NameOf returns the name of a pool's policy, and of its CiliumNetworkPolicy.
func NameOf(pool string) string { return "atoll-pool-" + pool }

// OpeningNameOf returns the name of the policy that opens a pool's listed destinations. It has a prefix of its own; because with a suffix
// it could be the name of another pool's policy.
func OpeningNameOf(pool string) string { return "atoll-egress-" + pool }

// Policy renders the NetworkPolicy that closes the network of all Pods of a pool, except for the worker. It sets all fields that the API
// server would default, so that it can be compared.
func Policy(pool *v1alpha1.SandboxPool, worker Worker) *unstructured.Unstructured {
	from := doc{"namespaceSelector": labelled(map[string]string{namespaceName: worker.Namespace})}
	if len(worker.Labels) > 0 {
		from["podSelector"] = labelled(worker.Labels)
	}
	return object(policyKind, NameOf(pool.Name), pool, doc{
		"podSelector": labelled(podsOf(pool)),
		"policyTypes": []any{"Ingress", "Egress"},
		"ingress":     []any{doc{"from": []any{from}}},
	})
}

// Opening renders the NetworkPolicy that opens a pool's listed destinations, except for sandboxes whose claim denies egress. It returns nil
// if the pool lists none.
func Opening(pool *v1alpha1.SandboxPool, e *Egress) *unstructured.Unstructured {
	egress := []any{}
	if e.DNS {
		ports := portList([]Port{{"UDP", 53}, {"TCP", 53}})
		egress = append(egress,
			doc{"to": []any{doc{"namespaceSelector": labelled(map[string]string{namespaceName: metav1.NamespaceSystem})}}, "ports": ports},
			doc{"to": []any{doc{"ipBlock": doc{"cidr": nodeDNS}}}, "ports": ports})
	}
	for _, b := range e.Blocks {
		block := doc{"cidr": b.CIDR.String()}
		if len(b.Except) > 0 {
			block["except"] = texts(b.Except)
		}
		rule := doc{"to": []any{doc{"ipBlock": block}}}
		if len(b.Ports) > 0 {
			rule["ports"] = portList(b.Ports)
		}
		egress = append(egress, rule)
	}
	if len(egress) == 0 {
		return nil
	}
	return object(policyKind, OpeningNameOf(pool.Name), pool, doc{
		"podSelector": undenied(pool), "policyTypes": []any{"Egress"}, "egress": egress,
	})
}

// undenied selects the Pods of a pool, except for those whose sandbox's claim denies egress.
func undenied(pool *v1alpha1.SandboxPool) doc {
	selector := labelled(podsOf(pool))
	selector["matchExpressions"] = []any{doc{"key": v1alpha1.EgressLabelKey, "operator": "NotIn", "values": []any{v1alpha1.EgressDenied}}}
	return selector
}

const namespaceName = "kubernetes.io/metadata.name"

// Names renders a pool's CiliumNetworkPolicy, or nil if it lists no names. Pods may then look up these names, and no others unless the
// NetworkPolicy opens DNS. Cilium reads the DNS responses.
func Names(pool *v1alpha1.SandboxPool, e *Egress) *unstructured.Unstructured {
	if len(e.Names) == 0 {
		return nil
	}
	var queries, rules []any
	for _, n := range e.Names {
		match := doc{"matchName": n.Name}
		if strings.HasPrefix(n.Name, "*.") {
			match = doc{"matchPattern": n.Name}
		}
		queries = append(queries, match)
		rule := doc{"toFQDNs": []any{match}}
		if len(n.Ports) > 0 {
			var ports []any
			for _, p := range n.Ports {
				ports = append(ports, doc{"port": strconv.FormatInt(p.Number, 10), "protocol": p.Protocol})
			}
			rule["toPorts"] = []any{doc{"ports": ports}}
		}
		rules = append(rules, rule)
	}
	dns := doc{
		"toEndpoints": []any{doc{"matchLabels": doc{"k8s:io.kubernetes.pod.namespace": metav1.NamespaceSystem, "k8s:k8s-app": "kube-dns"}}},
		"toPorts":     []any{doc{"ports": []any{doc{"port": "53", "protocol": "ANY"}}, "rules": doc{"dns": queries}}},
	}
	return object(ciliumKind, NameOf(pool.Name), pool, doc{"endpointSelector": undenied(pool), "egress": append([]any{dns}, rules...)})
}

func podsOf(pool *v1alpha1.SandboxPool) map[string]string {
	return map[string]string{
		v1alpha1.ManagedByLabelKey: v1alpha1.ManagedBySandboxAPIServer, v1alpha1.SandboxPoolLabelKey: pool.Name,
	}
}

func object(kind schema.GroupVersionKind, name string, pool *v1alpha1.SandboxPool, spec doc) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: doc{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(pool.Namespace)
	o.SetName(name)
	o.SetLabels(podsOf(pool))
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("SandboxPool"))})
	return o
}

func labelled(labels map[string]string) doc {
	match := doc{}
	for key, value := range labels {
		match[key] = value
	}
	return doc{"matchLabels": match}
}

func portList(ports []Port) (out []any) {
	for _, p := range ports {
		out = append(out, doc{"protocol": p.Protocol, "port": p.Number})
	}
	return out
}

func texts(of []netip.Prefix) (out []any) {
	for _, p := range of {
		out = append(out, p.String())
	}
	return out
}
