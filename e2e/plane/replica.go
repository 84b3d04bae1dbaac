// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// AddAPIServer starts another API server on the plane's etcd, with its own caches, and returns its host and port. It ends with
// the plane. Pause and StopAPIServer affect only the first one.
func (p *Plane) AddAPIServer(ctx context.Context) (address string, err error) {
	port, err := reservePort()
	if err != nil {
		return "", err
	}
	p.morePorts = append(p.morePorts, port)
	proc := p.component("kube-apiserver", p.apiServerArgs(port.number))
	proc.logPath = p.file(fmt.Sprintf("kube-apiserver-%d.log", port.number))
	p.procs = append(p.procs, proc)
	if err := proc.start(); err != nil {
		return "", err
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port.number))
	config := p.Config()
	config.Host = "https://" + address
	return address, p.waitReadyAt(ctx, config)
}
