// Package ssm is the Parameter Store of AWS Systems Manager in memory. Parameters under /aws/ are Amazon's: nobody can
// put one through the API, so Seed does. Versions are counted, old ones are not kept; labels, policies and change
// history are left out.
package ssm
