// SPDX-License-Identifier: Apache-2.0

// Package forward forwards a port of a Pod as kubectl does, without hub and worker, for what suites and benchmarks compare with.
package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
)

// Port returns what opens connections to a port of a Pod. Each has a connection of its own to the API server.
func Port(config *rest.Config, namespace, pod, port string) (func(context.Context) (io.ReadWriteCloser, error), error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	url := kube.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("portforward").URL()
	return func(context.Context) (io.ReadWriteCloser, error) {
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
		if err != nil {
			return nil, err
		}
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err != nil {
			return nil, err
		}
		headers := http.Header{}
		headers.Set(corev1.PortHeader, port)
		headers.Set(corev1.PortForwardRequestIDHeader, "0")
		headers.Set(corev1.StreamType, corev1.StreamTypeError)
		if _, err := conn.CreateStream(headers); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		data, err := conn.CreateStream(headers)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return stream{data, conn}, nil
	}, nil
}

type stream struct {
	httpstream.Stream
	conn httpstream.Connection
}

func (s stream) Close() error { return s.conn.Close() }
