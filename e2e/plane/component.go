// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// etcd's sockets, relative to the working directory of etcd and API server, so the directory's length does not count against
// the limit of socket paths. etcd requires a port-like suffix.
const (
	etcdClientURL = "unix://etcd-client:0"
	etcdPeerURL   = "unix://etcd-peer:0"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// ownProcesses is the number of a plane's initial components.
const ownProcesses = 5

// components are a plane's processes, in the order of their start.
func (p *Plane) components() []*process {
	return []*process{
		p.component("etcd", p.etcdArgs()),
		p.component("kube-apiserver", p.apiServerArgs(p.port.number)),
		p.component("kube-controller-manager", p.controllerManagerArgs()),
		p.component("kube-scheduler", p.schedulerArgs()),
		p.component("kwok", p.kwokArgs()),
	}
}

func (p *Plane) component(name string, args []string) *process {
	return &process{
		name:    name,
		path:    filepath.Join(p.binDir, name),
		args:    args,
		dir:     p.dir,
		logPath: filepath.Join(p.logDir, name+".log"),
		adopt:   p.adopt,
		report:  func(format string, args ...any) { p.log.printf(p.Name+": "+format, args...) },
	}
}

func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }

// etcdArgs keep fsync on; because measurements on a plane should hold elsewhere.
func (p *Plane) etcdArgs() []string {
	return []string{
		"--name=etcd",
		"--data-dir=" + p.file("etcd"),
		"--listen-client-urls=" + etcdClientURL,
		"--advertise-client-urls=" + etcdClientURL,
		"--listen-peer-urls=" + etcdPeerURL,
		"--initial-advertise-peer-urls=" + etcdPeerURL,
		"--initial-cluster=etcd=" + etcdPeerURL,
		"--quota-backend-bytes=" + strconv.Itoa(4<<30),
		"--log-level=warn",
	}
}

func (p *Plane) apiServerArgs(port int) []string {
	args := []string{
		"--etcd-servers=" + etcdClientURL,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--permit-port-sharing=true",
		// No Pod can reach the API server, and the loopback address may not be an endpoint of its Service.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		"--client-ca-file=" + p.file("ca.crt"),
		"--tls-cert-file=" + p.file("apiserver.crt"),
		"--tls-private-key-file=" + p.file("apiserver.key"),
		"--kubelet-client-certificate=" + p.file("kubelet-client.crt"),
		"--kubelet-client-key=" + p.file("kubelet-client.key"),
		"--kubelet-certificate-authority=" + p.file("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.file("service-account.key"),
		"--service-account-signing-key-file=" + p.file("service-account.key"),
		// Tests must find the ceiling of Atoll, not that of the request limiter.
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1500",
	}
	if p.auditLog {
		args = append(args,
			"--audit-policy-file="+p.file("audit-policy.yaml"),
			"--audit-log-path="+p.auditPath(),
			// In megabytes. A rotated log would be incomplete.
			"--audit-log-maxsize=10240",
		)
	}
	return args
}

func (p *Plane) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + p.file("kube-controller-manager.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file=" + p.file("ca.crt"),
		"--service-account-private-key-file=" + p.file("service-account.key"),
		"--cluster-signing-cert-file=" + p.file("ca.crt"),
		"--cluster-signing-key-file=" + p.file("ca.key"),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
}

func (p *Plane) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + p.file("kube-scheduler.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
}

func (p *Plane) kwokArgs() []string {
	// Pod addresses differ between planes, and are not reused: a restarted kwok does not know its predecessor's Pod addresses,
	// so it uses another range.
	podCIDR := fmt.Sprintf("10.%d.0.1/16", 128+p.index%8*16+p.kwokStarts%16)
	p.kwokStarts++
	return []string{
		"--kubeconfig=" + p.file("kwok.kubeconfig"),
		"--config=" + p.file("kwok.yaml"),
		"--manage-all-nodes=true",
		"--cidr=" + podCIDR,
		// Nodes post their status instead. A lease would keep a restarted kwok from its predecessor's nodes and Pods until it
		// expires.
		"--node-lease-duration-seconds=0",
		"--node-ip=127.0.0.1",
	}
}
