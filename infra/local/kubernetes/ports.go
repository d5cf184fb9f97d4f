package kubernetes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Free ports are looked for below the ranges from which operating systems take the ports of outgoing connections, so
// that none is lost between the look and its use.
const (
	firstPort = 20000
	lastPort  = 29999
)

// freePorts returns n different ports of 127.0.0.1 that nobody listens on.
func freePorts(n int) ([]int, error) {
	var ports []int
	taken := map[int]bool{}
	for range 100 * n {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if taken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		taken[port] = true
		ports = append(ports, port)
	}
	return nil, errors.New("find free ports on 127.0.0.1: none left")
}
