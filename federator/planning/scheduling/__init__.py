"""When everything would run, and what that is worth.

- `objective`: the one evaluator: carries a decision out and prices what follows. `displacing`: what it takes from work outside the window.
- `forecast`: when jobs will run at home, and for how long; `speeds`: how fast on each GPU model.
- `listed`: schedules by the quickest means at hand, which are two that come to the same:
  - in plain Python `schedule`, on its `board`, of `lanes` of jobs that are alike, with `patience` for a better place;
  - by the compiled kernels, for which `ways` and `cases` put the world into arrays, and `carried` puts what they say back into words.
- `bookings`, `blocks`: what a schedule comes to: places and times, and why a job did not start.
"""
