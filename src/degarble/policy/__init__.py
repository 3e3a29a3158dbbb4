"""What a team decided about findings: severities, accepted numbers, waivers with reasons, a baseline."""
